"""What all client commands have in common: the gateway's address and key, `--json`, and plain error messages."""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

import click

from router.cli.client import Client, ClientError
from router.cli.exits import Exit

P = ParamSpec("P")

DEFAULT_PORT = "8080"


_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "*": "127.0.0.1", "": "127.0.0.1"}
"""Where a gateway is reached that listens on all addresses."""


def default_url() -> str:
    """The gateway on this machine, where `serve` would listen in the same environment (its first address)."""
    host = _setting("HOST").split(",")[0].strip()
    if host.endswith(".sock"):
        return f"unix:{host}"
    host = _EVERYWHERE.get(host, host)
    scheme = "https" if _setting("SSL_CERT_FILE") else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{_setting('PORT') or DEFAULT_PORT}"


def _setting(name: str) -> str:
    return os.environ.get(f"LLAMAHERD_{name}") or os.environ.get(f"LLAMA_ARG_{name}") or ""


class RemoteCommand(click.Command):
    """A command that talks to a gateway. Its errors are one plain message and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ClientError as error:
            print(f"llamaherd {ctx.info_name}: {error}", file=sys.stderr)
            ctx.exit(error.exit)
        except KeyboardInterrupt:
            # click would say "Aborted!", as if something had gone wrong.
            ctx.exit(Exit.INTERRUPTED)


def remote(function: Callable[Concatenate[Client, P], None]) -> Callable[P, None]:
    """Adds `--url` and `--api-key`, and hands the function a client as its first argument."""

    @click.option(
        "--url", envvar="LLAMAHERD_URL", default=default_url, show_default=False, help="The gateway. [LLAMAHERD_URL]"
    )
    @click.option("--api-key", envvar="LLAMAHERD_API_KEY", default="", help="Key for it. [LLAMAHERD_API_KEY]")
    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        url = str(kwargs.pop("url"))
        api_key = str(kwargs.pop("api_key"))
        # The variable may hold several keys, since `serve` reads it too.
        client = Client(url, api_key.split(",")[0].strip())
        function(client, *args, **kwargs)

    return wrapped


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def examples(*lines: str) -> str:
    """The end of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)

"""`llamaherd pull`: fetch a model from the hub, with a bar."""

from __future__ import annotations

import time
from typing import Any

import click

from router.cli import display
from router.cli.client import Client, ClientError
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote
from router.cli.transfers import downloads, error_text, find, is_active

INTERVAL = 0.25
APPEARS_WITHIN = 10.0


@click.command(
    "pull",
    cls=RemoteCommand,
    epilog=examples("llamaherd pull ggml-org/gemma-3-1b-it-GGUF:Q4_K_M", "llamaherd pull --no-wait user/repo"),
)
@remote
@click.argument("reference", metavar="USER/REPO[:QUANT]")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Show the progress until it is there.")
@json_option
def command(client: Client, reference: str, wait: bool, as_json: bool) -> None:
    """Download a model. Ctrl-C leaves it running in the gateway; run it again to watch it further."""
    answer = client.post("/models", {"model": reference})
    if not wait:
        print_json(answer) if as_json else print(f"downloading {reference}; see `llamaherd downloads`")
        return
    identity = str(answer.get("id") or reference) if isinstance(answer, dict) else reference
    finished = follow(client, identity)
    if as_json:
        print_json(finished)
    else:
        print(f"{reference} is there ({display.size(finished.get('total'))})")


def follow(client: Client, reference: str) -> dict[str, Any]:
    """Show the progress of a download until it ends well. Raises `ClientError` if it does not."""
    deadline = time.monotonic() + APPEARS_WITHIN
    with display.Bars() as bars:
        while True:
            found = find(downloads(client), reference)
            if found is None:
                if time.monotonic() > deadline:
                    raise ClientError(f"the gateway does not list the download '{reference}'")
            elif found.get("state") == "done":
                return found
            elif not is_active(found):
                raise ClientError(f"{reference}: {found.get('state')}: {error_text(found) or 'no reason given'}")
            else:
                rate = found.get("rate")
                note = f"{found['state']} {display.size(rate)}/s" if rate else str(found["state"])
                bars.show(
                    reference, float(found.get("done") or 0), float(found.get("total") or 0), note=note, bytes=True
                )
            time.sleep(INTERVAL)  # noqa: TID251

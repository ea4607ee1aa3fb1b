"""`llamaherd health`: for containers and scripts."""

from __future__ import annotations

import sys

import click

from router.cli.client import Client, ClientError
from router.cli.exits import Exit
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote


@click.command("health", cls=RemoteCommand, epilog=examples("llamaherd health", "llamaherd health --ready --quiet"))
@remote
@click.option("--ready", is_flag=True, help="Ask whether it takes new requests, not only whether it is alive.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing; the exit code says it all.")
@click.option("--timeout", default=5.0, show_default=True, help="Seconds to wait for the answer.")
@json_option
def command(client: Client, ready: bool, quiet: bool, timeout: float, as_json: bool) -> None:
    """Check that a gateway is alive. The exit code is 0 only if it is."""
    client.timeout = timeout
    try:
        answer = client.get("/ready" if ready else "/health")
    except ClientError as error:
        if quiet:
            sys.exit(error.exit if error.exit is not Exit.FAILED else Exit.UNHEALTHY)
        if error.exit is Exit.FAILED:
            raise ClientError(f"not {'ready' if ready else 'healthy'}: {error}", Exit.UNHEALTHY) from error
        raise
    if as_json:
        print_json(answer)
    elif not quiet:
        print("ready" if ready else "ok")

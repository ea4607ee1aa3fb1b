"""`llamaherd logs`: the last lines of a worker."""

from __future__ import annotations

import click

from router.cli.client import Client
from router.cli.remote import RemoteCommand, examples, remote


@click.command(
    "logs", cls=RemoteCommand, epilog=examples("llamaherd logs my-model", "llamaherd logs -f my-model | grep error")
)
@remote
@click.argument("model", required=False)
@click.option("-f", "--follow", is_flag=True, help="Keep printing what comes.")
def command(client: Client, model: str | None, follow: bool) -> None:
    """Print the log of a model's worker, or the gateway's own without a model."""
    for line in client.lines("GET", "/logs", model=model, follow=follow or None):
        print(line, flush=follow)

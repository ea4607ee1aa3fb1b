"""`llamaherd logs`: the last lines of a worker, or of the gateway."""

from __future__ import annotations

import json

import click

from router.cli.client import Client
from router.cli.remote import RemoteCommand, examples, remote


@click.command(
    "logs",
    cls=RemoteCommand,
    epilog=examples(
        "llamaherd logs my-model", "llamaherd logs -f my-model | grep error", "llamaherd logs --lines 20 --json"
    ),
)
@remote
@click.argument("model", required=False)
@click.option("-n", "--lines", type=click.IntRange(min=0), help="Only so many of the last lines.")
@click.option("-f", "--follow", is_flag=True, help="Keep printing what comes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(client: Client, model: str | None, lines: int | None, follow: bool, as_json: bool) -> None:
    """Print the log of a model's worker, or the gateway's own without a model."""
    for line in client.lines("GET", "/logs", model=model, lines=lines, follow=follow or None):
        print(json.dumps({"line": line}, ensure_ascii=False) if as_json else line, flush=follow)

"""`llamaherd load`: put a model into memory before it is needed."""

from __future__ import annotations

import time
from typing import Any

import click

from router.cli import display
from router.cli.client import Client, ClientError
from router.cli.listing import entry_of, reason, state_word
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote

INTERVAL = 0.1


@click.command(
    "load", cls=RemoteCommand, epilog=examples("llamaherd load my-model", "llamaherd load --no-wait my-model")
)
@remote
@click.argument("model")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it is loaded.")
@json_option
def command(client: Client, model: str, wait: bool, as_json: bool) -> None:
    """Load a model, and wait until it is ready."""
    if state_word(entry_of(client, model)) != "loaded":
        client.post("/models/load", {"model": model})
    entry = follow(client, model) if wait else entry_of(client, model)
    if as_json:
        print_json(entry)
    else:
        print(f"{entry['id']} is {state_word(entry)}")


def follow(client: Client, model: str) -> dict[str, Any]:
    """Show the progress of a load until it ends. Raises `ClientError` if it fails."""
    begun = False
    with display.Bars() as bars:
        while True:
            entry = entry_of(client, model)
            word = state_word(entry)
            if word == "loaded":
                return entry
            if word == "failed":
                raise ClientError(f"{model} could not be loaded: {reason(entry) or 'no reason given'}")
            if word in ("loading", "downloading"):
                begun = True
            elif begun and word == "unloaded":
                raise ClientError(f"{model} was unloaded again: {reason(entry) or 'no reason given'}")
            status = entry["status"]
            note = str(status.get("stage") or entry.get("blocked") or "waiting")
            bars.show(model, float(status.get("progress") or 0.0), 1.0, note=note)
            time.sleep(INTERVAL)  # noqa: TID251

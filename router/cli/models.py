"""`llamaherd models`: everything that can be asked for."""

from __future__ import annotations

import click

from router.cli import display
from router.cli.client import Client
from router.cli.listing import entries, memory, reason, state_text
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote


@click.command("models", cls=RemoteCommand, epilog=examples("llamaherd models", "llamaherd models --reload --json"))
@remote
@click.option("--reload", is_flag=True, help="Read presets and folders again first.")
@json_option
def command(client: Client, reload: bool, as_json: bool) -> None:
    """List models: where they come from, what they are, and how they are."""
    found = entries(client, reload=reload)
    if as_json:
        print_json(found)
        return
    if not found:
        print("no models; serve some with `llamaherd serve --models-dir FOLDER`, or fetch one with `llamaherd pull`")
        return
    rows = [
        (
            entry["id"],
            state_text(entry),
            entry["source"],
            memory(entry),
            ", ".join(entry["aliases"]),
            "pinned" if entry.get("pinned") else "",
            reason(entry),
        )
        for entry in found
    ]
    columns = ("MODEL", "STATE", "SOURCE", "MEMORY", "ALIASES", "", "REASON")
    display.console().print(display.table(columns, rows, right=("MEMORY",)))

"""`llamaherd ps`: what is in memory."""

from __future__ import annotations

import time

import click
from rich.table import Table

from router.cli import display
from router.cli.client import Client
from router.cli.listing import RUNNING, entries, memory, reason, requests, slots, speed, state_text
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote


@click.command("ps", cls=RemoteCommand, epilog=examples("llamaherd ps", "llamaherd ps --watch"))
@remote
@click.option("-w", "--watch", is_flag=True, help="Keep showing, until Ctrl-C.")
@click.option("--every", default=1.0, show_default=True, help="Seconds between two looks.")
@json_option
def command(client: Client, watch: bool, every: float, as_json: bool) -> None:
    """Show models in memory, and what they do. Looking neither wakes a model nor keeps it awake."""
    if as_json:
        print_json([entry for entry in entries(client) if entry["status"]["value"] in RUNNING])
        return

    def wait() -> bool:
        time.sleep(every)  # noqa: TID251
        return True

    if watch:
        display.watch(lambda: processes(client), wait)
    else:
        display.console().print(processes(client))


def processes(client: Client) -> Table:
    """The table, read now."""
    rows = [
        (
            entry["id"],
            state_text(entry),
            memory(entry),
            slots(entry),
            requests(entry),
            speed(entry),
            "pinned" if entry.get("pinned") else "",
            reason(entry),
        )
        for entry in entries(client)
        if entry["status"]["value"] in RUNNING
    ]
    columns = ("MODEL", "STATE", "MEMORY", "SLOTS", "REQUESTS", "TOKENS/S", "", "REASON")
    return display.table(columns, rows, right=("MEMORY", "SLOTS", "REQUESTS", "TOKENS/S"))

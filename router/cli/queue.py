"""`llamaherd queue`: what waits, for what, and why."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Group

from router.cli import display
from router.cli.client import Client
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote


@click.command("queue", cls=RemoteCommand, epilog=examples("llamaherd queue", "llamaherd queue --json"))
@remote
@json_option
def command(client: Client, as_json: bool) -> None:
    """Show requests that wait, and the latest decisions about models."""
    found = client.get("/queue")
    if as_json:
        print_json(found)
    else:
        display.console().print(shown(found))


def shown(found: dict[str, Any]) -> Group:
    waiting = [
        (
            str(item.get("position", "")),
            str(item.get("model", "")),
            display.duration(item.get("waited_s")),
            str(item.get("reason", "")),
        )
        for item in found.get("waiting", ())
    ]
    decisions = [
        (str(item.get("model", "")), str(item.get("decision", "")), str(item.get("reason", "")))
        for item in found.get("decisions", ())
    ]
    return Group(
        display.table(("#", "MODEL", "WAITED", "REASON"), waiting, right=("#", "WAITED"))
        if waiting
        else "nothing waits",
        "",
        display.table(("MODEL", "DECISION", "REASON"), decisions) if decisions else "no decisions yet",
    )

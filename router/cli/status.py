"""`llamaherd status`: the gateway at a glance."""

from __future__ import annotations

from collections import Counter

import click

from router.cli import display
from router.cli.client import Client, ClientError
from router.cli.exits import Exit
from router.cli.listing import entries, state_word
from router.cli.ps import processes
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote


@click.command("status", cls=RemoteCommand, epilog=examples("llamaherd status", "llamaherd status --json"))
@remote
@json_option
def command(client: Client, as_json: bool) -> None:
    """Show whether the gateway serves, how many models are in which state, and what waits."""
    client.get("/health")
    ready, why = readiness(client)
    found = entries(client)
    queue = client.get("/queue")
    waiting = len(queue.get("waiting", ()))
    states = Counter(state_word(entry) for entry in found)
    running = sum(entry.get("requests", {}).get("running", 0) for entry in found)
    if as_json:
        print_json(
            {
                "url": client.url,
                "ready": ready,
                "reason": why,
                "models": dict(states),
                "running": running,
                "waiting": waiting,
            }
        )
        return
    counted = ", ".join(f"{count} {word}" for word, count in sorted(states.items())) or "none"
    out = display.console()
    out.print(
        display.panel_table(
            client.url,
            [
                ("ready", "yes" if ready else f"no: {why}"),
                ("models", counted),
                ("requests", f"{running} running, {waiting} waiting"),
            ],
        )
    )
    if running or any(word in states for word in ("loaded", "loading", "sleeping")):
        out.print(processes(client))


def readiness(client: Client) -> tuple[bool, str]:
    """Whether new requests are welcome, and why not."""
    try:
        client.get("/ready")
    except ClientError as error:
        if error.exit is not Exit.FAILED:
            raise
        return False, str(error)
    return True, ""

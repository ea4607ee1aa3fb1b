"""`llamaherd events`: what happens, as it happens."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime

import click

from router.cli.client import Client, ClientError
from router.cli.exits import Exit
from router.cli.remote import RemoteCommand, examples, remote
from router.cli.sse import ServerEvent, server_events

RECONNECT_AFTER = 1.0


@click.command("events", cls=RemoteCommand, epilog=examples("llamaherd events", "llamaherd events --json | jq .event"))
@remote
@click.option("--model", help="Events of this model only.")
@click.option("--snapshot/--no-snapshot", default=False, help="Show the state of all models first.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def command(client: Client, model: str | None, snapshot: bool, as_json: bool) -> None:
    """Follow loads, evictions, sleep, crashes and downloads, until Ctrl-C. Reconnects without losing events."""
    last = ""
    connected = False
    while True:
        try:
            with client.open("GET", "/models/sse", headers=_headers(last), timeout=0) as response:
                connected = True
                for event in server_events(client.lines_of(response)):
                    last = event.id or last
                    if not event.comment:
                        show(event, model, snapshot=snapshot, as_json=as_json)
        except ClientError as error:
            if error.exit is not Exit.UNREACHABLE or not connected:
                raise
        print("connection lost, connecting again", file=sys.stderr)
        time.sleep(RECONNECT_AFTER)  # noqa: TID251


def _headers(last: str) -> dict[str, str]:
    headers = {"Accept": "text/event-stream"}
    return headers | {"Last-Event-ID": last} if last else headers


def show(event: ServerEvent, model: str | None, *, snapshot: bool, as_json: bool) -> None:
    """Print one event, unless it is about another model."""
    value = event.json()
    kind = value.get("event", event.name)
    name = value.get("model", "*")
    if (kind == "snapshot" and not snapshot) or (model is not None and name not in (model, "*")):
        return
    if as_json:
        print(json.dumps({"id": event.id, **value}, ensure_ascii=False), flush=True)
        return
    if kind == "snapshot":
        for entry in value.get("data", {}).get("models", ()):
            print(f"         {entry['id']}: {entry['status']['value']}", flush=True)
        return
    print(f"{datetime.now():%H:%M:%S} {name}: {kind} {summary(value.get('data'))}".rstrip(), flush=True)


def summary(data: object) -> str:
    """The telling parts of an event's data, in one line."""
    if not isinstance(data, dict):
        return "" if data is None else str(data)
    words: list[str] = []
    for key in ("status", "reason", "exit_code", "error"):
        value = data.get(key)
        if isinstance(value, str | int) and value != "":
            words.append(str(value) if key == "status" else f"{key}={value}")
    progress = data.get("progress")
    if isinstance(progress, dict) and "value" in progress:
        words.append(f"{progress.get('current', '')} {float(progress['value']):.0%}".strip())
    elif isinstance(progress, dict):
        parts = [part for part in progress.values() if isinstance(part, dict)]
        done, total = (sum(part.get(name, 0) for part in parts) for name in ("done", "total"))
        if total:
            words.append(f"{done / total:.0%}")
    return " ".join(words)

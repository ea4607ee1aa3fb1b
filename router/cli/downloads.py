"""`llamaherd downloads`: what is being fetched, and what was."""

from __future__ import annotations

import time
from typing import Any

import click
from rich.table import Table

from router.cli import display
from router.cli.client import Client, ClientError
from router.cli.exits import Exit
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote
from router.cli.transfers import downloads, error_text, find, is_active


@click.command(
    "downloads",
    cls=RemoteCommand,
    epilog=examples("llamaherd downloads --watch", "llamaherd downloads --cancel user/repo:Q4_K_M"),
)
@remote
@click.option("-w", "--watch", is_flag=True, help="Keep showing while anything is being fetched.")
@click.option("--every", default=0.5, show_default=True, help="Seconds between two looks.")
@click.option("--cancel", metavar="NAME", help="Cancel one, by its name or id. What is there is kept and resumed.")
@click.option("--purge", is_flag=True, help="With --cancel: delete what is there.")
@click.option("--pause", metavar="NAME", help="Stop one until it is resumed, also over a restart of the gateway.")
@click.option("--resume", metavar="NAME", help="Go on with a paused one.")
@json_option
def command(
    client: Client,
    watch: bool,
    every: float,
    cancel: str | None,
    purge: bool,
    pause: str | None,
    resume: str | None,
    as_json: bool,
) -> None:
    """Show downloads with their progress; cancel, pause or resume one."""
    if cancel is not None:
        answer = client.delete(f"/downloads/{meant(client, cancel)['id']}", purge=purge or None)
        kept = display.size(answer.get("kept_bytes") or 0)
        print_json(answer) if as_json else print(f"cancelled {cancel}; {kept} kept")
        return
    if pause is not None or resume is not None:
        verb, name = ("pause", pause) if pause is not None else ("resume", str(resume))
        answer = client.post(f"/downloads/{verb}", {"id": meant(client, str(name))["id"]})
        print_json(answer) if as_json else print(f"{verb}d {name}")
        return
    if as_json:
        print_json(downloads(client))
        return

    def wait() -> bool:
        time.sleep(every)  # noqa: TID251
        return any(is_active(item) for item in downloads(client))

    if watch:
        display.watch(lambda: listing(client), wait)
    else:
        display.console().print(listing(client))


def listing(client: Client) -> Table:
    """The table, read now."""
    rows = []
    for item in downloads(client):
        done, total = item.get("done") or 0, item.get("total") or 0
        share = f"{done / total:.0%}" if total else "-"
        rate = item.get("rate")
        rows.append(
            (
                str(item.get("id", "")),
                str(item.get("reference", "")),
                display.state(str(item.get("state", ""))),
                share,
                f"{display.size(done)} / {display.size(total)}" if total else "-",
                f"{display.size(rate)}/s" if rate else "-",
                eta(item),
                error_text(item),
            )
        )
    columns = ("ID", "MODEL", "STATE", "DONE", "BYTES", "RATE", "ETA", "ERROR")
    return display.table(columns, rows, right=("DONE", "BYTES", "RATE", "ETA"))


def eta(item: dict[str, Any]) -> str:
    """The time that is left, where it is known."""
    seconds = item.get("eta")
    known = is_active(item) and isinstance(seconds, int | float) and seconds >= 0
    return display.duration(seconds) if known else ""


def meant(client: Client, name: str) -> dict[str, Any]:
    """The download of this name. Raises `ClientError`."""
    found = find(downloads(client), name)
    if found is None:
        raise ClientError(f"there is no download '{name}'", Exit.NOT_FOUND)
    return found

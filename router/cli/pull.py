"""`llamaherd pull`: fetch a model from the hub, with a bar per file."""

from __future__ import annotations

import time
from typing import Any

import click
from rich.console import Group

from router.cli import display
from router.cli.client import Client, ClientError
from router.cli.exits import Exit
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote
from router.cli.transfers import download, error_text, is_active

INTERVAL = 0.25
PLAN_LIMIT = 120.0
"""Seconds to wait for the plan: the hub is asked for all files before anything is queued."""


@click.command(
    "pull",
    cls=RemoteCommand,
    epilog=examples(
        "llamaherd pull ggml-org/gemma-3-1b-it-GGUF:Q4_K_M",
        "llamaherd pull --dry-run user/repo",
        "llamaherd pull --detach user/repo:Q8_0",
    ),
)
@remote
@click.argument("reference", metavar="USER/REPO[:QUANT]")
@click.option("-d", "--detach", is_flag=True, help="Leave it running in the gateway and return.")
@click.option("--dry-run", is_flag=True, help="Show the files and their sizes, and fetch nothing.")
@click.option("--projector", metavar="auto|none|FILE", help="The multimodal projector to fetch with it.")
@click.option("--draft", metavar="auto|none|FILE", help="The draft model to fetch with it.")
@json_option
def command(
    client: Client, reference: str, detach: bool, dry_run: bool, projector: str | None, draft: str | None, as_json: bool
) -> None:
    """Download a model. Ctrl-C cancels; what is there already is kept, and pulling again goes on from it."""
    wishes = {"projector": projector, "draft": draft, "dry_run": dry_run or None}
    client.timeout = PLAN_LIMIT
    with display.spinner(f"asking the hub for {reference}"):
        answer = client.post("/models", {"model": reference, **{k: v for k, v in wishes.items() if v is not None}})
    if dry_run:
        print_json(answer) if as_json else display.console().print(planned(answer))
        return
    if detach:
        print_json(answer) if as_json else print(f"downloading {reference}; see `llamaherd downloads`")
        return
    try:
        ended = follow(client, answer)
    except KeyboardInterrupt:
        cancelled = client.delete(f"/downloads/{answer['id']}")
        kept = display.size(cancelled.get("kept_bytes") or 0)
        raise ClientError(f"{reference} was cancelled; {kept} are kept to go on from", Exit.INTERRUPTED) from None
    if as_json:
        print_json(ended)
    else:
        print(f"{ended['model']} is there ({display.size(ended.get('total'))})")


def planned(answer: dict[str, Any]) -> Group:
    """What would be fetched."""
    plan = answer["plan"]
    rows = [(file["path"], file["role"], display.size(file["size"])) for file in plan["files"]]
    rows += [
        (file["path"], f"{file['role']}, optional", display.size(file["size"])) for file in plan.get("optional", ())
    ]
    lines = [f"{answer['model']} at {str(plan.get('commit', ''))[:12]}: {display.size(plan['size'])}"]
    space = plan.get("space")
    if space is not None:
        room = "" if space["fits"] else ": NOT ENOUGH SPACE"
        lines.append(f"{display.size(space['missing'])} to fetch, {display.size(space['free'])} free{room}")
    return Group(*lines, display.table(("FILE", "PART", "SIZE"), rows, right=("SIZE",)))


def follow(client: Client, answer: dict[str, Any]) -> dict[str, Any]:
    """Show the progress of a download until it ends well. Raises `ClientError` if it does not."""
    item = answer
    with display.Bars() as bars:
        while item.get("state") != "done":
            if not is_active(item):
                raise ClientError(f"{item['reference']} {item['state']}: {error_text(item) or 'no reason given'}")
            show(bars, item)
            time.sleep(INTERVAL)  # noqa: TID251
            item = download(client, item["id"])
        show(bars, item)
    return item


def show(bars: display.Bars, item: dict[str, Any]) -> None:
    rate = item.get("rate")
    note = f"{item['state']} {display.size(rate)}/s" if rate else str(item["state"])
    files = item.get("files") or [{"path": item["reference"], "done": item.get("done"), "total": item.get("total")}]
    for file in files:
        bars.show(str(file["path"]), float(file["done"] or 0), float(file["total"] or 0), note=note, bytes=True)

"""`llamaherd rm`: delete downloaded models."""

from __future__ import annotations

import click

from router.cli import display
from router.cli.client import Client, ClientError
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote


@click.command(
    "rm",
    cls=RemoteCommand,
    epilog=examples(
        "llamaherd rm user/repo:Q4_K_M", "llamaherd rm --yes a/b:Q8_0 c/d:Q4_0", "llamaherd rm --old user/repo"
    ),
)
@remote
@click.argument("models", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--old", is_flag=True, help="Delete only superseded revisions of the model's repository.")
@click.option("--purge", is_flag=True, help="Delete what is left of a download that was not finished.")
@json_option
def command(client: Client, models: tuple[str, ...], yes: bool, old: bool, purge: bool, as_json: bool) -> None:
    """Delete models from the hub cache. Files of a folder or preset are never touched."""
    what = "superseded revisions of " if old else ""
    if not yes and not click.confirm(f"Delete {what}{', '.join(models)}?", err=True):
        raise ClientError("nothing was deleted")
    freed: dict[str, int] = {}
    for model in models:
        answer = client.delete("/models", model=model, old=old or None, purge=purge or None)
        freed[model] = int(answer.get("freed_bytes") or 0)
        if not as_json:
            print(f"deleted {what}{model}, freed {display.size(freed[model])}")
    if as_json:
        print_json({"deleted": list(models), "freed_bytes": freed})

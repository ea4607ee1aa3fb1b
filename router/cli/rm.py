"""`llamaherd rm`: delete downloaded models."""

from __future__ import annotations

import click

from router.cli.client import Client, ClientError
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote


@click.command(
    "rm", cls=RemoteCommand, epilog=examples("llamaherd rm user/repo:Q4_K_M", "llamaherd rm --yes a/b:Q8_0 c/d:Q4_0")
)
@remote
@click.argument("models", nargs=-1, required=True)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@json_option
def command(client: Client, models: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete models from the hub cache. Files of a folder or preset are never touched."""
    if not yes and not click.confirm(f"Delete {', '.join(models)}?", err=True):
        raise ClientError("nothing was deleted")
    deleted: list[str] = []
    for model in models:
        client.delete("/models", model=model)
        deleted.append(model)
        if not as_json:
            print(f"deleted {model}")
    if as_json:
        print_json({"deleted": deleted})

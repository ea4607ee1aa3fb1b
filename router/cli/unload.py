"""`llamaherd unload`: give memory back."""

from __future__ import annotations

import click

from router.cli.client import Client
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote


@click.command(
    "unload", cls=RemoteCommand, epilog=examples("llamaherd unload my-model", "llamaherd unload --force my-model")
)
@remote
@click.argument("model")
@click.option("--force", is_flag=True, help="Cancel what runs instead of letting it end.")
@json_option
def command(client: Client, model: str, force: bool, as_json: bool) -> None:
    """Unload a model. Requests that run come to their end first."""
    answer = client.post("/models/unload", {"model": model, "force": force}, force=force or None)
    if as_json:
        print_json(answer)
    else:
        print(f"unloading {model}" + ("" if force else " when its requests have ended"))

"""`llamaherd bench`: how fast a running gateway is."""

from __future__ import annotations

from typing import Any

import click
from msgspec import to_builtins
from rich.table import Table

from router.cli import display
from router.cli.chat import choose
from router.cli.client import Client
from router.cli.load_test import Measurement, run
from router.cli.remote import RemoteCommand, examples, json_option, print_json, remote

PROMPT = "Write a long story about a lighthouse keeper who finds a message in a bottle."


@click.command(
    "bench",
    cls=RemoteCommand,
    epilog=examples(
        "llamaherd bench", "llamaherd bench -c 1,4,8 -n 128 my-model", "llamaherd bench --json > result.json"
    ),
)
@remote
@click.argument("model", required=False)
@click.option("-c", "--concurrency", default="1,4,8", show_default=True, help="Clients at a time, comma-separated.")
@click.option("-r", "--requests", default=0, help="Requests per level; 0: twice the clients.")
@click.option("-n", "--max-tokens", default=64, show_default=True, help="Tokens per answer.")
@click.option("-p", "--prompt", default=PROMPT, help="The question.")
@click.option(
    "--same-prompt/--own-prompts", default=False, show_default=True, help="Ask all the same, or each its own."
)
@json_option
def command(
    client: Client,
    model: str | None,
    concurrency: str,
    requests: int,
    max_tokens: int,
    prompt: str,
    same_prompt: bool,
    as_json: bool,
) -> None:
    """Measure a running gateway: tokens per second, time to the first token, and between tokens, by concurrency."""
    levels = parsed_levels(concurrency)
    name = model or choose(client)
    body: dict[str, Any] = {"model": name, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    with display.spinner(f"loading {name}"):
        run(client, body | {"max_tokens": 1}, prompt, clients=1, requests=1, same_prompt=True)
    found: list[Measurement] = []
    with display.spinner("measuring") as say:
        for clients in levels:
            say(f"measuring with {clients} clients")
            count = requests or 2 * clients
            found.append(run(client, body, prompt, clients=clients, requests=count, same_prompt=same_prompt))
    if as_json:
        print_json({"model": name, "max_tokens": max_tokens, "levels": to_builtins(found)})
    else:
        display.console().print(results(found))


def parsed_levels(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or not all(word.isdecimal() and 1 <= int(word) <= 1024 for word in words):
        raise click.BadParameter(f"'{text}' is not a list of numbers such as 1,4,8", param_hint="--concurrency")
    return [int(word) for word in words]


def results(found: list[Measurement]) -> Table:
    rows = [
        (
            str(item.clients),
            str(item.requests),
            str(item.failed),
            f"{item.tokens_per_second:.1f}",
            display.duration(item.first_token.p50),
            display.duration(item.first_token.p99),
            display.duration(item.between_tokens.p50),
            display.duration(item.between_tokens.p99),
            display.duration(item.took),
        )
        for item in found
    ]
    columns = ("CLIENTS", "REQUESTS", "FAILED", "TOKENS/S", "FIRST P50", "FIRST P99", "GAP P50", "GAP P99", "TOOK")
    return display.table(columns, rows, right=columns)

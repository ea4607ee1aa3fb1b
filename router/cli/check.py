"""`llamaherd check`: what a configuration means, without serving it."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from router.cli import display
from router.cli.exits import Exit
from router.cli.options import TableCommand
from router.cli.remote import examples, print_json
from router.config.configuration import Configuration, configure
from router.config.errors import ConfigError
from router.config.lookup import assign
from router.config.model import Model
from router.config.option import Assignment


@click.command(
    "check",
    cls=TableCommand,
    epilog=examples(
        "llamaherd check presets.ini", "llamaherd check --models-dir ~/models -c 8192", "llamaherd check --json"
    ),
)
@click.argument("file", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def command(ctx: click.Context, file: str | None, as_json: bool) -> None:
    """Check a configuration: effective values, where each comes from, and the memory each model will need.

    Takes every option of `serve`, and the environment, as `serve` would. The exit code is 1 if a model cannot be
    served, 2 if the gateway would not start.
    """
    given: tuple[Assignment, ...] = ctx.obj
    if file is not None:
        preset = assign("models-preset", file, "FILE")
        assert preset is not None
        given = (*given, preset)
    try:
        configuration = configure(given, read_cached=True)
    except ConfigError as error:
        print(f"llamaherd check: {error}", file=sys.stderr)
        ctx.exit(Exit.USAGE)
    if as_json:
        print_json(described(configuration))
    else:
        out = display.console()
        for part in report(configuration):
            out.print(part)
    failed = any(model.error for model in configuration.catalogue.models.values())
    ctx.exit(Exit.FAILED if failed else Exit.OK)


def described(configuration: Configuration) -> dict[str, Any]:
    """The whole report as plain values. Sizes in bytes."""
    machine = configuration.machine
    return {
        "machine": {
            "threads": machine.threads,
            "memory": machine.memory,
            "backends": machine.backends,
            "gpu": machine.gpu,
        },
        "budget": dict(configuration.policy().budget),
        "warnings": list(configuration.warnings),
        "settings": [value(item) for item in configuration.given],
        "models": [model_value(model) for model in configuration.catalogue.models.values()],
    }


def value(item: Assignment) -> dict[str, str]:
    return {"option": item.option.name, "value": item.text, "origin": item.origin}


def model_value(model: Model) -> dict[str, Any]:
    return {
        "id": model.id,
        "aliases": model.aliases,
        "source": model.source,
        "listed": model.listed,
        "load_key": model.key or None,
        "error": model.error or None,
        "missing": model.missing or None,
        "context": model.parameters.ctx_size if model.parameters is not None else None,
        "values": [value(item) for item in model.assignments],
        "overridden": [{**value(item.lost), "by": item.won.origin} for item in model.overridden],
        "memory": [
            {
                "device": part.device,
                "total": part.total,
                "weights": part.weights,
                "context": part.context,
                "compute": part.compute,
                "caches": part.caches,
            }
            for part in model.predictions
        ],
    }


def report(configuration: Configuration) -> list[RenderableType]:
    """The report for people, part by part."""
    machine = configuration.machine
    budget = (
        ", ".join(f"{device} {display.size(size)}" for device, size in configuration.policy().budget) or "unlimited"
    )
    parts: list[RenderableType] = [
        f"{machine.threads} threads, backends {', '.join(machine.backends)}, GPU {machine.gpu or 'none'}; "
        f"budget for models: {budget}"
    ]
    parts.extend(Text(f"warning: {warning}", style="yellow") for warning in configuration.warnings)
    if configuration.given:
        rows = [(item.option.name, item.text, item.origin) for item in configuration.given]
        parts.extend(("", display.table(("SETTING", "VALUE", "FROM"), rows)))
    sharing = configuration.catalogue.sharing
    for model in configuration.catalogue.models.values():
        parts.extend(
            ("", Group(*model_report(model, [other.id for other in sharing(model.key) if other is not model])))
        )
    if not configuration.catalogue.models:
        parts.extend(("", "no models: name some with --model, --models-dir, --models-preset or --hf-repo"))
    return parts


def model_report(model: Model, others: list[str]) -> list[RenderableType]:
    heading = Text(model.id, style="bold")
    heading.append(f"  {model.source}", style="dim")
    if model.aliases:
        heading.append(f"  also {', '.join(model.aliases)}", style="dim")
    parts: list[RenderableType] = [heading]
    if model.error:
        parts.append(Text(f"  cannot be served: {model.error}", style="bold red"))
    elif model.missing:
        parts.append(f"  not there yet: {model.missing} is downloaded when it is first wanted")
    elif model.parameters is not None:
        parts.append(f"  context {model.parameters.ctx_size or 'chosen at load'}, {model.parameters.slots} slots")
    if others:
        parts.append(f"  shares its worker with {', '.join(others)}")
    for part in model.predictions:
        parts.append(
            f"  memory on {part.device}: about {display.size(part.total)} "
            f"(weights {display.size(part.weights)}, context {display.size(part.context)}, "
            f"compute {display.size(part.compute)})"
            + (f"; caches may grow to {display.size(part.caches)}" if part.caches else "")
        )
    rows = [(f"  {item.option.name}", item.text, item.origin) for item in model.assignments]
    if rows:
        parts.append(display.table(("  KEY", "VALUE", "FROM"), rows))
    parts.extend(
        Text(
            f"  {item.lost.option.name} = {item.lost.text} ({item.lost.origin}) is overridden by {item.won.origin}",
            "yellow",
        )
        for item in model.overridden
    )
    return parts

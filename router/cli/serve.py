"""`llamaherd serve`: settle the configuration, then hand over to the application."""

from __future__ import annotations

import sys

import click

from router import app
from router.cli.exits import Exit
from router.cli.options import TableCommand
from router.config.configuration import Configuration, configure
from router.config.errors import ConfigError


@click.command(
    "serve",
    cls=TableCommand,
    epilog="""\b
Examples:
  llamaherd serve -m model.gguf -c 8192 -np 4
  llamaherd serve --models-dir ~/models --models-max 2
  llamaherd serve --models-preset presets.ini --host 0.0.0.0 --api-key-file keys
""",
)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Serve models over HTTP.

    llama-server's options keep their names. Each option is also an environment variable, named behind it; the command
    line wins over the environment, and both win over presets.
    """
    try:
        configuration = configure(ctx.obj)
        check_single(configuration)
    except ConfigError as error:
        print(f"llamaherd: {error}", file=sys.stderr)
        ctx.exit(Exit.USAGE)
    ctx.exit(app.run(configuration))


def check_single(configuration: Configuration) -> None:
    """Where there is one model only, what is wrong with it ends the start. Raises `ConfigError`."""
    if configuration.catalogue.single:
        model = configuration.catalogue.resolve(None)
        if model.error:
            raise ConfigError(f"the model '{model.id}' cannot be served: {model.error}")

"""`llamaherd completion`: completion scripts for shells."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from router.cli.remote import examples

SHELLS = ("bash", "zsh", "fish")


@click.command(
    "completion",
    epilog=examples(
        'eval "$(llamaherd completion bash)"', "llamaherd completion fish > ~/.config/fish/completions/llamaherd.fish"
    ),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a completion script for a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    root = ctx.find_root().command
    print(kind(root, {}, "llamaherd", "_LLAMAHERD_COMPLETE").source())

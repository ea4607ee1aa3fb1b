"""The command itself: a group whose subcommands are imported when they are called.

The import by name is on purpose: `serve` must not pay for the tables and progress bars of the client commands, nor
`health`, which a container calls every few seconds, for the web server.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys

import click

from router.cli.exits import Exit

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("router.cli.serve", "Serve models."),
    "health": ("router.cli.health", "Check that a gateway is alive."),
    "status": ("router.cli.status", "Show the gateway, its models and its queue."),
    "ps": ("router.cli.ps", "Show models in memory and what they do."),
    "models": ("router.cli.models", "List models."),
    "load": ("router.cli.load", "Load a model and wait until it is ready."),
    "unload": ("router.cli.unload", "Unload a model."),
    "pull": ("router.cli.pull", "Download a model."),
    "rm": ("router.cli.rm", "Delete a downloaded model."),
    "downloads": ("router.cli.downloads", "Show downloads."),
    "chat": ("router.cli.chat", "Chat with a model in the terminal."),
    "logs": ("router.cli.logs", "Show the log of a model's worker."),
    "events": ("router.cli.events", "Follow what happens."),
    "queue": ("router.cli.queue", "Show what waits, and why."),
    "check": ("router.cli.check", "Check a configuration and show what it means."),
    "bench": ("router.cli.bench", "Measure a running gateway."),
    "version": ("router.cli.version", "Show versions and the engine's backends."),
    "completion": ("router.cli.completion", "Print a completion script for your shell."),
}
"""Subcommand -> its module, whose `command` is run, and its line in the help."""


class Commands(click.Group):
    """Subcommands by table."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """From the table, so that the help imports no subcommand."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What writing to a full or broken disk or terminal fails with."""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Try `llamaherd serve -m model.gguf`, then `llamaherd chat` in another terminal.",
)
@click.version_option(package_name="llamaherd", message="%(prog)s %(version)s")
def group() -> None:
    """One gateway for many local GGUF models."""


def main() -> None:
    """The entry point. Ends the process with an exit code of `Exit`."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    try:
        try:
            group(prog_name="llamaherd")
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        # Python flushes once more at its end, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(f"llamaherd: cannot write the output: {error.strerror}", file=sys.stderr)
        sys.exit(Exit.FAILED)


if __name__ == "__main__":
    main()

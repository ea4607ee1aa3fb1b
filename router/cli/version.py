"""`llamaherd version`: what is installed, and what the engine can use."""

from __future__ import annotations

import importlib.metadata
import platform

import click

from router.cli.remote import examples, json_option, print_json
from router.config.machine import look


@click.command("version", epilog=examples("llamaherd version", "llamaherd version --json"))
@json_option
def command(as_json: bool) -> None:
    """Show versions, the engine's backends, and the GPU that would be used."""
    machine = look()
    found = {
        "llamaherd": installed("llamaherd"),
        "llama-cpp-python": installed("llama-cpp-python"),
        "python": platform.python_version(),
        "backends": list(machine.backends),
        "gpu": machine.gpu or None,
        "threads": machine.threads,
        "memory": machine.memory,
    }
    if as_json:
        print_json(found)
        return
    print(f"llamaherd {found['llamaherd']} (llama-cpp-python {found['llama-cpp-python']}, Python {found['python']})")
    print(f"backends: {', '.join(machine.backends)}; GPU: {machine.gpu or 'none'}")
    memory = f"{machine.memory / 2**30:.1f} GiB" if machine.memory is not None else "unknown"
    print(f"usable here: {machine.threads} threads, {memory} of memory")


def installed(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"

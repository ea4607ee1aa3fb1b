"""What the commands do when their output cannot be written, as processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.router.cli.stub import StubGateway, entry

COMMAND = f"{sys.executable} -P -m router.cli.main"


def shell(gateway: StubGateway, line: str) -> subprocess.CompletedProcess[str]:
    gateway.on("GET", "/models", {"data": [entry("m")]})
    gateway.on("GET", "/queue", {"waiting": []})
    environment = {**os.environ, "LLAMAHERD_URL": gateway.url, "LLAMAHERD": COMMAND}
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60, env=environment)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["models", "models --json", "version", "status", "--version", "--help"])
def test_a_full_disk_is_told_in_one_line(command: str, gateway: StubGateway) -> None:
    done = shell(gateway, f"$LLAMAHERD {command} > /dev/full")
    assert (done.returncode, done.stderr) == (1, "llamaherd: cannot write the output: No space left on device\n")


@pytest.mark.parametrize("command", ["models", "health", "version --json"])
def test_nobody_listens(command: str, gateway: StubGateway) -> None:
    done = shell(gateway, f"$LLAMAHERD {command} >&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_has_seen_enough(gateway: StubGateway) -> None:
    done = shell(gateway, "$LLAMAHERD models --json | head -c 1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "[", "")

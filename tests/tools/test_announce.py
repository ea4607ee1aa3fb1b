from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.announce import elapsed

SCRIPT = Path(__file__).with_name("announce.py")


def announce(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", str(SCRIPT), *arguments], capture_output=True, text=True, timeout=30)


def test_output_and_exit_code_are_the_commands() -> None:
    result = announce("trying", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (result.returncode, result.stdout, result.stderr) == (3, "out\n", "err\n")


def test_a_silent_command_gives_signs_of_life_and_stays_silent_when_it_speaks() -> None:
    result = announce("waiting", "--every", "0.2", "--", "sleep", "0.9")
    lines = result.stderr.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith("... waiting: ") for line in lines)
    assert announce("quick", "--", "true").stderr == ""


def test_a_command_that_ends_by_a_signal() -> None:
    assert announce("dying", "--", "sh", "-c", "kill -TERM $$").returncode == 128 + 15


def test_a_command_that_does_not_exist() -> None:
    result = announce("missing", "--", "/does/not/exist")
    assert result.returncode == 127
    assert "/does/not/exist" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("a", "b", "--", "true"), ("a", "--")])
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert announce(*arguments).returncode == 2


@pytest.mark.parametrize(("seconds", "text"), [(7.9, "7s"), (75, "1m15s"), (3600, "60m00s")])
def test_elapsed(seconds: float, text: str) -> None:
    assert elapsed(seconds) == text

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from protocol.errors import ErrorKind, ExitCode, WireError
from protocol.load import Dying
from router.scheduling.events import ExitReason
from router.supervision.exits import STDERR_LINES, Ending, count_oom_kills, describe, report


def dying(kind: ErrorKind, message: str, code: int) -> Dying:
    return Dying(WireError(kind, message), code)


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (Ending(0, (), asked=ExitReason.IDLE), ExitReason.IDLE),
        (Ending(-signal.SIGKILL, (), asked=ExitReason.WEDGED, oom_kills=1), ExitReason.WEDGED),
        (Ending(0, ()), ExitReason.CRASHED),
        (Ending(1, ()), ExitReason.CRASHED),
        (Ending(-signal.SIGSEGV, ()), ExitReason.SIGNAL),
        (Ending(-signal.SIGKILL, ()), ExitReason.SIGNAL),
        (Ending(-signal.SIGKILL, (), oom_kills=1), ExitReason.OUT_OF_MEMORY),
        (Ending(ExitCode.OUT_OF_MEMORY, ()), ExitReason.OUT_OF_MEMORY),
        (Ending(-signal.SIGABRT, ("terminate called", "what():  std::bad_alloc")), ExitReason.OUT_OF_MEMORY),
        (Ending(1, ("ggml_backend_cpu_buffer: failed to allocate buffer of size 9",)), ExitReason.OUT_OF_MEMORY),
        (Ending(-signal.SIGABRT, ("GGML_ASSERT failed",)), ExitReason.SIGNAL),
        (Ending(ExitCode.LOAD_FAILED, ()), ExitReason.LOAD_ERROR),
        (Ending(1, (), dying=dying(ErrorKind.LOAD_FAILED, "bad file", 1)), ExitReason.LOAD_ERROR),
    ],
)
def test_reasons(ending: Ending, reason: ExitReason) -> None:
    assert report(ending).reason is reason


def test_an_allocation_that_failed_long_ago_is_not_the_cause() -> None:
    lines = ("failed to allocate, retrying", *("fine",) * STDERR_LINES)
    assert report(Ending(-signal.SIGABRT, lines)).reason is ExitReason.SIGNAL


def test_the_childs_own_words_win() -> None:
    found = report(Ending(64, ("a", "b"), dying=dying(ErrorKind.LOAD_FAILED, "no such file: x.gguf", 64)))
    assert found.message == "no such file: x.gguf"
    assert found.stderr == ("a", "b")


def test_only_the_last_lines_are_reported() -> None:
    assert len(report(Ending(1, tuple(map(str, range(100))))).stderr) == STDERR_LINES


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (64, "could not be loaded"),
        (-11, "SIGSEGV"),
        (-99, "signal 99"),
    ],
)
def test_codes_in_words(code: int, words: str) -> None:
    assert words in describe(code)


def test_an_engine_for_another_processor_is_named() -> None:
    assert "another processor" in report(Ending(-signal.SIGILL, ())).message


def test_kills_are_counted_where_the_kernel_tells(tmp_path: Path) -> None:
    assert count_oom_kills(tmp_path, tmp_path / "none") == 0
    (tmp_path / "vmstat").write_text("nr_free_pages 5\noom_kill 7\n")
    assert count_oom_kills(tmp_path, tmp_path / "none") == 7
    cgroup = tmp_path / "cgroup"
    cgroup.mkdir()
    (cgroup / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    assert count_oom_kills(tmp_path, cgroup) == 2

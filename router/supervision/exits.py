"""Why a child ended: a pure judgement over what is known of it."""

from __future__ import annotations

import re
import signal
from pathlib import Path

from msgspec import Struct

from protocol.errors import ErrorKind, ExitCode
from protocol.load import Dying
from router.scheduling.events import ExitReason, ExitReport

STDERR_LINES = 20
"""Last lines of output that go into a report."""

_ALLOCATION_FAILED = re.compile(
    r"out of memory|bad_alloc|failed to allocate|unable to allocate|cannot allocate memory|MemoryError", re.IGNORECASE
)
_CODE_WORDS = {
    ExitCode.USAGE: "it was started in a wrong way",
    ExitCode.LOAD_FAILED: "the model could not be loaded",
    ExitCode.REFUSED: "it was refused",
    ExitCode.ENGINE_FAILED: "the engine failed",
    ExitCode.OUT_OF_MEMORY: "there was not enough memory",
    ExitCode.PARENT_GONE: "it missed its router",
    ExitCode.CONNECTION_LOST: "it lost its connection",
}
_SIGNAL_GUESSES = {
    int(signal.SIGKILL): ", perhaps by the kernel for lack of memory",
    int(signal.SIGILL): ": the engine was compiled for another processor, or by a faulty compiler",
}


class Ending(Struct, frozen=True):
    """What is known when a child has been reaped.

    `asked` is the reason for which we stopped it, None if we did not. `oom_kills` counts the kernel's out-of-memory
    kills during its life, in the machine or in our control group.
    """

    code: int
    lines: tuple[str, ...]
    asked: ExitReason | None = None
    dying: Dying | None = None
    oom_kills: int = 0


def report(ending: Ending) -> ExitReport:
    """Judge an ending."""
    reason, words = _judge(ending)
    if ending.dying is not None and ending.dying.reason.message:
        words = ending.dying.reason.message
    return ExitReport(reason, ending.code, words, ending.lines[-STDERR_LINES:])


def _judge(ending: Ending) -> tuple[ExitReason, str]:
    words = describe(ending.code)
    if ending.asked is not None:
        return ending.asked, words
    if _lacked_memory(ending):
        return ExitReason.OUT_OF_MEMORY, f"{words}, for lack of memory"
    if ending.code < 0:
        # Nobody else kills with this signal, as a rule: an operator, or the kernel where we cannot read its counters.
        return ExitReason.SIGNAL, words + _SIGNAL_GUESSES.get(-ending.code, "")
    load_failed = ending.dying is not None and ending.dying.reason.kind is ErrorKind.LOAD_FAILED
    if ending.code == ExitCode.LOAD_FAILED or load_failed:
        return ExitReason.LOAD_ERROR, words
    return ExitReason.CRASHED, words


def _lacked_memory(ending: Ending) -> bool:
    if ending.code == ExitCode.OUT_OF_MEMORY:
        return True
    if ending.code == -signal.SIGKILL:
        return ending.oom_kills > 0
    aborted = ending.code in (-signal.SIGABRT, -signal.SIGSEGV, ExitCode.CRASH, ExitCode.LOAD_FAILED)
    return aborted and any(_ALLOCATION_FAILED.search(line) for line in ending.lines[-STDERR_LINES:])


def describe(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        known = _CODE_WORDS.get(ExitCode(code)) if code in set(ExitCode) else None
        return f"exit code {code}: {known}" if known else f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def count_oom_kills(proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> int:
    """Out-of-memory kills so far: of our control group where it counts them, else of the machine; 0 if unknown."""
    for path in (cgroups / "memory.events", proc / "vmstat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        for line in text.splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.isdecimal():
                return int(value)
    return 0

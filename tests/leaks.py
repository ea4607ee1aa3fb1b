"""What a test may not leave behind: child processes, threads, sockets, pipes and other kernel objects."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

from msgspec import Struct

PATIENCE = 5.0
"""Seconds that things which are ending already may take."""
POLL = 0.02
_KINDS = ("socket:", "pipe:", "anon_inode:")


class Holdings(Struct, frozen=True):
    """What this process holds now. Descriptors of ordinary files are none of it: libraries cache some."""

    children: frozenset[int]
    threads: frozenset[int]
    descriptors: frozenset[tuple[int, str]]


def look() -> Holdings:
    return Holdings(_children(), _threads(), _descriptors())


def leaked_since(before: Holdings) -> list[str]:
    """What is there and was not there before, in words, once it has had time to go."""
    deadline = time.monotonic() + PATIENCE
    collected = False
    while leaks := _compare(before, look()):
        if not collected:
            gc.collect()  # sockets in reference cycles are no leak
            collected = True
        elif time.monotonic() > deadline:
            return leaks
        else:
            time.sleep(POLL)  # noqa: TID251
    return []


def _compare(before: Holdings, after: Holdings) -> list[str]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    leaks = [f"child process {pid}: {_command(pid)}" for pid in sorted(after.children - before.children)]
    leaks += [f"thread {names.get(ident, ident)}" for ident in sorted(after.threads - before.threads)]
    leaks += [f"descriptor {fd}: {target}" for fd, target in sorted(after.descriptors - before.descriptors)]
    return leaks


def _children() -> frozenset[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update(int(pid) for pid in (task / "children").read_text().split())
        except OSError:  # the thread has just ended
            continue
    return frozenset(found)


def _threads() -> frozenset[int]:
    return frozenset(thread.ident for thread in threading.enumerate() if thread.ident is not None)


def _descriptors() -> frozenset[tuple[int, str]]:
    found: set[tuple[int, str]] = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # the descriptor of the listing itself
            continue
        if target.startswith(_KINDS):
            found.add((int(name), target))
    return frozenset(found)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone"

"""The lock of one blob, shared with other tools: whoever holds it writes the blob's content."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_RETRY = 0.2
STALE = 3600.0
"""Seconds after which a lock file that nobody holds is litter."""


@contextlib.contextmanager
def blob_lock(path: Path, waiting: Callable[[float], object]) -> Iterator[None]:
    """Hold the lock. While somebody else does, `waiting(seconds)` is called again and again; it has to block so long.

    The kernel gives the lock back when the holder dies; the file is removed on the way out.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if _taken(descriptor) and _is_same(descriptor, path):
                break
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        waiting(_RETRY)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def sweep(path: Path) -> bool:
    """Remove a lock file that nobody holds; says whether it is gone."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        if not _taken(descriptor):
            return False
        path.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


def sweep_stale(root: Path, age: float = STALE) -> int:
    """Remove the lock files under a cache that nobody holds and nobody touched for `age` seconds; says how many."""
    now = time.time()
    swept = 0
    for path in root.glob(".locks/models--*/*.lock"):
        with contextlib.suppress(FileNotFoundError, PermissionError):
            if now - path.stat().st_mtime > age and sweep(path):
                swept += 1
    return swept


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_same(descriptor: int, path: Path) -> bool:
    """Whether the locked file is still the one at `path`: another holder may have removed it on its way out."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False

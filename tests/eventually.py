"""Bounded waiting for what no event announces: fails with a reason, never hangs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

POLL = 0.01


def eventually(predicate: Callable[[], object], timeout: float, reason: str) -> None:
    """Return once `predicate()` is true; raise `AssertionError(reason)` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {reason}")
        time.sleep(POLL)  # noqa: TID251


async def eventually_async(predicate: Callable[[], object], timeout: float, reason: str) -> None:
    """The same on an event loop."""
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {reason}")
        await asyncio.sleep(POLL)  # noqa: TID251

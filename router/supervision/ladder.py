"""The stop ladder: ask, then insist, with a budget per rung; whoever is left gets SIGKILL."""

from __future__ import annotations

import asyncio
import enum
import signal
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

TERM_BUDGET = 2.0
ABORT_BUDGET = 1.0
"""Time for the stack dump of a child that did not react."""
STUCK_AFTER = 10.0
"""Seconds after SIGKILL until a process that is still there counts as stuck in the kernel."""


class Rung(enum.IntEnum):
    """How far the ladder had to be climbed until the process ended."""

    MESSAGE = 1
    TERM = 2
    ABORT = 3
    KILL = 4
    STUCK = 5


class Budgets(Struct, frozen=True):
    """Seconds that each rung waits for the end. A rung whose budget is 0 is left out."""

    message: float
    term: float = TERM_BUDGET
    abort: float = ABORT_BUDGET
    kill: float = STUCK_AFTER


class Target(Protocol):
    """What the ladder does to a child, whose end is told by an event."""

    @property
    def ended(self) -> asyncio.Event: ...

    def ask_to_stop(self) -> bool:
        """Send `Shutdown`. False if the child cannot be reached."""
        ...

    def signal(self, number: signal.Signals) -> None: ...


def stop_budgets(budget: float) -> Budgets:
    """For a stop on request: `budget` seconds for the child to end by itself."""
    return Budgets(message=budget)


def kill_budgets(dump: bool) -> Budgets:
    """For a child that is beyond talking to: SIGKILL at once, or behind a stack dump."""
    return Budgets(message=0.0, term=0.0, abort=ABORT_BUDGET if dump else 0.0)


async def climb(target: Target, budgets: Budgets) -> Rung:
    """Climb until the child has ended; returns the rung that did it, `STUCK` if none."""
    if budgets.message > 0 and target.ask_to_stop() and await _ended(target, budgets.message):
        return Rung.MESSAGE
    rungs: list[tuple[Rung, Callable[[], None], float]] = [
        (Rung.TERM, lambda: target.signal(signal.SIGTERM), budgets.term),
        (Rung.ABORT, lambda: target.signal(signal.SIGABRT), budgets.abort),
        (Rung.KILL, lambda: target.signal(signal.SIGKILL), budgets.kill),
    ]
    for rung, act, budget in rungs:
        if budget <= 0:
            continue
        act()
        if await _ended(target, budget):
            return rung
    return Rung.STUCK


async def _ended(target: Target, budget: float) -> bool:
    try:
        async with asyncio.timeout(budget):
            await target.ended.wait()
    except TimeoutError:
        return False
    return True

"""The order and the budgets of the rungs, without a process."""

from __future__ import annotations

import asyncio
import signal

import pytest

from router.supervision.ladder import Budgets, Rung, climb, kill_budgets, stop_budgets


class Stubborn:
    """Ends at one of the things that are done to it, or at none."""

    def __init__(self, ends_at: object, reachable: bool = True) -> None:
        self.ended = asyncio.Event()
        self.done: list[object] = []
        self._ends_at = ends_at
        self._reachable = reachable

    def ask_to_stop(self) -> bool:
        if self._reachable:
            self._suffer("message")
        return self._reachable

    def signal(self, number: signal.Signals) -> None:
        self._suffer(number)

    def _suffer(self, what: object) -> None:
        self.done.append(what)
        if what == self._ends_at:
            self.ended.set()


QUICK = Budgets(message=0.01, term=0.01, abort=0.01, kill=0.01)
ALL = ["message", signal.SIGTERM, signal.SIGABRT, signal.SIGKILL]


@pytest.mark.parametrize(("index", "rung"), list(enumerate([Rung.MESSAGE, Rung.TERM, Rung.ABORT, Rung.KILL])))
async def test_climbs_as_far_as_it_must(index: int, rung: Rung) -> None:
    target = Stubborn(ALL[index])
    assert await climb(target, QUICK) is rung
    assert target.done == ALL[: index + 1]


async def test_what_even_a_kill_does_not_end_is_stuck() -> None:
    target = Stubborn(None)
    assert await climb(target, QUICK) is Rung.STUCK
    assert target.done == ALL


async def test_a_child_without_a_connection_gets_signals_at_once() -> None:
    target = Stubborn(signal.SIGTERM, reachable=False)
    assert await climb(target, stop_budgets(60.0)) is Rung.TERM
    assert target.done == [signal.SIGTERM]


@pytest.mark.parametrize("dump", [True, False])
async def test_a_kill_leaves_out_what_is_gentle(dump: bool) -> None:
    target = Stubborn(signal.SIGABRT if dump else signal.SIGKILL)
    await climb(target, kill_budgets(dump))
    assert target.done == [signal.SIGABRT if dump else signal.SIGKILL]

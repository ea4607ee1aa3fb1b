"""When a job rests, and for how long."""

from __future__ import annotations

import pytest

from downloader.manners import BURST, LONGEST, LOOK, SHARE, Manners


class World:
    """Clocks that a test moves. `others` cores are busy beside the job."""

    def __init__(self, cores: int, others: float) -> None:
        self.now = 0.0
        self.worked = 0.0
        self.taken = 0.0
        self.others = others
        self.rests: list[float] = []
        self._asked = (0.0, 0.0)
        self.manners = Manners(lambda: self.worked, lambda: self.now, self._sleep, self._busy, cores)

    def work(self, seconds: float) -> None:
        self.worked += seconds
        self._pass(seconds)
        self.taken += seconds
        self.manners.rest()

    def _sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        self._pass(seconds)

    def _busy(self) -> float:
        then, taken = self._asked
        self._asked = (self.now, self.taken)
        return (self.taken - taken) / (self.now - then) if self.now > then else 0.0

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.taken += seconds * self.others


def test_beside_busy_cores_a_job_takes_its_share() -> None:
    world = World(cores=2, others=2.0)
    while world.now < 10:
        world.work(BURST / 4)
    assert world.worked / world.now == pytest.approx(SHARE, rel=0.05)
    assert max(world.rests) < 1.5 * BURST * (1 - SHARE) / SHARE


def test_with_a_core_to_spare_nothing_rests() -> None:
    world = World(cores=4, others=2.0)
    while world.now < 10:
        world.work(BURST / 4)
    assert world.worked > 10 - 2 * LOOK


def test_a_job_alone_is_not_in_its_own_way() -> None:
    world = World(cores=1, others=0.0)
    while world.now < 10:
        world.work(BURST)
    assert world.worked > 10 - 2 * LOOK


def test_it_notices_when_others_begin_and_end() -> None:
    world = World(cores=2, others=0.0)
    for others, resting in ((0.0, False), (2.0, True), (0.0, False)):
        world.others = others
        until = world.now + 2 * LOOK
        while world.now < until:
            world.work(BURST)
        world.rests.clear()
        world.work(BURST)
        assert bool(world.rests) is resting


def test_no_rest_is_long() -> None:
    world = World(cores=1, others=1.0)
    world.work(5.0)
    assert world.rests == [LONGEST]

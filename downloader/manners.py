"""How a job process leaves the cores to the models: beside them it works in short bursts, with rests between them.

Models compute with all cores, and their threads wait for one another at every layer. A job that runs on one core for a
while drives the threads of a model together on the others, where they take turns and each waits for the rest; so what
it takes costs several times as much, however little its weight. In a burst that is shorter than a step this does not
come about. While there is a core to spare, nothing rests.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import psutil

BURST = 0.002
"""Seconds of work at a stretch beside others who want all cores."""

SHARE = 0.1
"""The share of one core that is wanted then."""

SPARE = 0.5
"""Cores that have to be free, were it not for this process, for it to work without rests."""

LOOK = 0.1
"""Seconds between two looks at who uses the cores."""

LONGEST = 0.2
"""A rest in seconds; after a burst that could not be divided it would be longer."""


class Manners:
    """Rests as is due. `work` and `now` are clocks: seconds of work of this process, and of the world.

    `busy` says how many of all `cores` worked on average since it was called last.
    """

    def __init__(
        self,
        work: Callable[[], float],
        now: Callable[[], float],
        sleep: Callable[[float], object],
        busy: Callable[[], float],
        cores: int,
    ) -> None:
        self._work = work
        self._now = now
        self._sleep = sleep
        self._busy = busy
        self._cores = cores
        self._began = work()
        self._look = (now(), work())
        busy()
        self._crowded = True
        """Until the first look: a process that has just been started is at its busiest."""

    def rest(self) -> None:
        """To be called between small pieces of work."""
        worked = self._work() - self._began
        if worked < BURST:
            return
        self._look_around()
        if self._crowded:
            self._sleep(min(worked * (1 - SHARE) / SHARE, LONGEST))
        self._began = self._work()

    def _look_around(self) -> None:
        now, worked = self._now(), self._work()
        then, worked_then = self._look
        if now - then < LOOK:
            return
        others = self._busy() - (worked - worked_then) / (now - then)
        self._crowded = self._cores - others < SPARE
        self._look = (now, worked)


class PoliteImports:
    """A finder that finds nothing; asked before each module, it rests as is due."""

    def __init__(self, manners: Manners) -> None:
        self._manners = manners

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        self._manners.rest()
        return None


def give_way() -> None:
    """Let any other thread that wakes up take the core from this one. There is no way back without privileges.

    For work that goes on for long and at any speed, since beside others who never sleep little is left for it.
    """
    if sys.platform == "linux":
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


_CORES = os.cpu_count() or 1

own = Manners(time.process_time, time.monotonic, time.sleep, lambda: psutil.cpu_percent() / 100 * _CORES, _CORES)  # noqa: TID251
"""Those of this process."""

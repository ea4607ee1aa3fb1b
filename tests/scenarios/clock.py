"""A virtual clock: things happen in the order of their times, and no time passes between them."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._number = 0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, time: float, action: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._heap, (max(time, self.now), self._number, action))

    def later(self, delay: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay, action)

    def step(self, until: float) -> bool:
        """Run the next action; False when there is none before `until`."""
        if not self._heap or self._heap[0][0] > until:
            return False
        self.now, _, action = heapq.heappop(self._heap)
        action()
        return True

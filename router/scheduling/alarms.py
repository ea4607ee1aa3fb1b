"""The times at which the scheduler has to look again. A stale alarm only costs a look."""

from __future__ import annotations

import heapq


class Alarms:
    """A heap of times without doubles."""

    def __init__(self) -> None:
        self._heap: list[float] = []
        self._known: set[float] = set()
        self.armed: float | None = None
        """What the caller's timer is set to."""

    def at(self, time: float) -> None:
        if time not in self._known:
            self._known.add(time)
            heapq.heappush(self._heap, time)

    def due(self, now: float) -> bool:
        """Drop the times that have come; say whether there were any."""
        fired = False
        while self._heap and self._heap[0] <= now:
            self._known.discard(heapq.heappop(self._heap))
            fired = True
        if self.armed is not None and self.armed <= now:
            self.armed = None
        return fired

    def fired(self) -> None:
        """The timer has run out, perhaps a little early: it has to be set again."""
        self.armed = None

    def arm(self) -> float | None:
        """The time to set the timer to, None if it is right already."""
        if not self._heap or (self.armed is not None and self.armed <= self._heap[0]):
            return None
        self.armed = self._heap[0]
        return self.armed

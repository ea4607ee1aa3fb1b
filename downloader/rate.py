"""One rate limit for all jobs: how it is shared out, and how a job keeps to its share. Bytes and seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

HEADROOM = 1.25
"""What a job that does not use its share keeps, as a multiple of what it was seen to use."""


def shares(limit: float, measured: Mapping[int, float]) -> dict[int, float]:
    """Share out `limit` bytes per second among jobs by their measured rates.

    A job slower than an equal share keeps a little more than it uses, so that it can grow; the others divide the rest
    equally, and what is left after that goes to all alike. A job that was not measured yet (a negative rate) counts as
    fast. No limit (0) is no share (0).
    """
    if limit <= 0:
        return dict.fromkeys(measured, 0.0)
    result: dict[int, float] = {}
    left = limit
    waiting = sorted(measured, key=lambda job: measured[job] if measured[job] >= 0 else float("inf"))
    while waiting:
        equal = left / len(waiting)
        job = waiting.pop(0)
        want = measured[job] * HEADROOM if measured[job] >= 0 else equal
        floor = limit / (10 * len(measured))
        result[job] = min(equal, max(want, floor))
        left -= result[job]
    # What nobody was seen to use is nobody's loss: a job that was slow for a reason that has passed may use it.
    return {job: rate + left / len(result) for job, rate in result.items()}


class Pacer:
    """Keeps a stream of bytes to a rate, which may change at any time. 0 = no limit."""

    def __init__(self, wait: Callable[[float], object], clock: Callable[[], float]) -> None:
        self.rate = 0.0
        self._wait = wait
        self._clock = clock
        self._due = 0.0

    def spend(self, size: int) -> None:
        """Account for `size` bytes that arrived, and block as long as they are early.

        Time in which nothing came is not saved up beyond a tenth of a second.
        """
        if self.rate <= 0:
            return
        now = self._clock()
        self._due = max(self._due, now - 0.1) + size / self.rate
        while (ahead := self._due - self._clock()) > 0 and self.rate > 0:
            self._wait(min(ahead, 0.5))

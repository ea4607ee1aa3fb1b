"""Rate and remaining time of a transfer: pure, bytes and monotonic seconds."""

from __future__ import annotations

from collections import deque

WINDOW = 5.0
"""Seconds over which the rate is taken."""


class Speedometer:
    """The rate over the last seconds. Bytes that were there before the first reading do not count."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def saw(self, size: int, now: float) -> None:
        """Note the bytes on disk. Fewer than before (a file begun anew) start the reading anew."""
        if self._readings and size < self._readings[-1][1]:
            self._readings.clear()
        self._readings.append((now, size))
        while len(self._readings) > 2 and now - self._readings[1][0] >= WINDOW:
            self._readings.popleft()

    @property
    def rate(self) -> float:
        """Bytes per second; 0 until there are two readings."""
        if len(self._readings) < 2:
            return 0.0
        (then, before), (now, size) = self._readings[0], self._readings[-1]
        return (size - before) / (now - then) if now > then else 0.0

    def eta(self, left: int) -> float:
        """Seconds for `left` more bytes; -1 when nobody can say."""
        rate = self.rate
        return left / rate if rate > 0 else -1.0

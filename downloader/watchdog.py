"""Tells a transfer that stands still from a slow one: pure, `now` is monotonic seconds."""

from __future__ import annotations


class Watchdog:
    """Barks when bytes are due and none came for `limit` seconds."""

    def __init__(self, limit: float, now: float) -> None:
        self.limit = limit
        self._since = now
        self._bytes = -1

    def saw(self, size: int, now: float, expected: bool = True) -> bool:
        """Report the bytes on disk; `expected` False while none can come (hashing, waiting for a lock).

        Returns True when the transfer stands still for too long.
        """
        if size != self._bytes or not expected:
            self._bytes = size
            self._since = now
            return False
        return now - self._since >= self.limit

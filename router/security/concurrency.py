"""How many requests each key may have running."""

from __future__ import annotations

from collections import Counter

from router.security.keys import Key


class ConcurrencyLimit:
    """Requests that each key has running, against its own limit. Used on the event loop alone."""

    def __init__(self) -> None:
        self._running: Counter[str] = Counter()

    def enter(self, key: Key | None) -> bool:
        """Count one more request; False, and nothing counted, when the key has its fill."""
        if key is None or not key.concurrency:
            return True
        if self._running[key.name] >= key.concurrency:
            return False
        self._running[key.name] += 1
        return True

    def leave(self, key: Key | None) -> None:
        """Exactly once for each `enter` that returned True."""
        if key is None or not key.concurrency:
            return
        if self._running[key.name] <= 0:
            raise ValueError(f"key {key.name!r} has no request to leave")
        self._running[key.name] -= 1

    def running(self, key: Key) -> int:
        return self._running[key.name]

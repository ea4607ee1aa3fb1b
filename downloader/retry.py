"""When a job that failed is tried again: pure."""

from __future__ import annotations

from msgspec import Struct


class Retry(Struct, frozen=True):
    """How often a job has failed in a row without gaining a byte, and how much it had then."""

    failures: int = 0
    bytes_then: int = 0

    def failed(self, done: int) -> Retry:
        """Count a failure at `done` bytes; one that gained something starts the count anew."""
        return Retry(1 if done > self.bytes_then else self.failures + 1, max(done, self.bytes_then))


def backoff(failures: int, first: float, largest: float, jitter: float, retry_after: float = 0.0) -> float:
    """Seconds until the next attempt after `failures` in a row: doubling, spread by `jitter` (0..1) to half of it more.

    A hub that asks for patience gets it, also beyond `largest`.
    """
    wait = min(first * 2.0 ** max(0, failures - 1), largest)
    return max(wait * (1 + jitter / 2), retry_after)

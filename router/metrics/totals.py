"""Totals per model that never fall, though each worker counts from zero; and its speed, whoever scrapes."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable

from msgspec import structs

from protocol.status import Counters

RATE_WINDOW = 60.0
"""Seconds over which speeds are averaged."""
RATE_STEP = 1.0
"""At most one point a second is kept for that."""

_LARGEST = frozenset({"tokens_max"})
"""Fields that are a maximum, not a sum."""


def add(left: Counters, right: Counters) -> Counters:
    """Field by field: sums, and the larger one where the field is a maximum."""
    mine, other = structs.asdict(left), structs.asdict(right)
    return structs.replace(left, **{name: _join(name, value, other[name]) for name, value in mine.items()})


def _join(name: str, left: float, right: float) -> float:
    return max(left, right) if name in _LARGEST else left + right


class ModelTotals:
    """The counters of one model over all its workers."""

    def __init__(self) -> None:
        self.total = Counters()
        self._ended = Counters()
        """What workers counted that are no more."""
        self._worker: Hashable = None
        self._points: deque[tuple[float, Counters]] = deque()

    def update(self, worker: Hashable, counters: Counters, now: float) -> None:
        """What `worker` (one incarnation) has counted by now; a new worker closes the account of the one before."""
        if worker != self._worker:
            self._ended = self.total
            self._worker = worker
        self.total = add(self._ended, counters)
        if not self._points or now - self._points[-1][0] >= RATE_STEP:
            self._points.append((now, self.total))

    def rates(self, now: float) -> tuple[float, float]:
        """Prompt and generated tokens per second of computing them, within the window; 0 without any."""
        while len(self._points) > 1 and now - self._points[1][0] >= RATE_WINDOW:
            self._points.popleft()
        total = self.total
        if self._points and now - self._points[-1][0] >= RATE_WINDOW:
            self._points.clear()
        if not self._points:
            return 0.0, 0.0
        first = self._points[0][1]
        return (
            _rate(total.prompt_tokens - first.prompt_tokens, total.prompt_seconds - first.prompt_seconds),
            _rate(total.predicted_tokens - first.predicted_tokens, total.predicted_seconds - first.predicted_seconds),
        )

    def steady_until(self) -> float:
        """Until when `rates`, asked for just now, stay what they are if nothing more is counted."""
        points = self._points
        return points[min(1, len(points) - 1)][0] + RATE_WINDOW if points else math.inf


def _rate(tokens: int, seconds: float) -> float:
    return tokens / seconds if seconds > 0 else 0.0

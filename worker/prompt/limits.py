"""What a template may spend while it renders, and the counting of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from jinja2.exceptions import SecurityError

MAX_SOURCE_CHARS = 1 << 20
"""A template longer than this is not compiled."""


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Bounds of one rendering: seconds, loop iterations and macro calls, characters of a text, items of a list."""

    seconds: float = 5.0
    steps: int = 1_000_000
    chars: int = 32 << 20
    items: int = 1_000_000


class RenderLimitExceeded(SecurityError):
    """A template spent more than it may."""


class Meter:
    """Counts what one rendering spends. Not shared between threads."""

    def __init__(self, limits: RenderLimits) -> None:
        self.limits = limits
        self._steps = 0
        self._deadline = time.monotonic() + limits.seconds

    def restart(self, limits: RenderLimits) -> None:
        """Begin the count of another rendering."""
        self.limits = limits
        self._steps = 0
        self._deadline = time.monotonic() + limits.seconds

    def step(self) -> bool:
        """Count one loop iteration or macro call; True so that it can stand in a condition."""
        self._steps += 1
        if self._steps > self.limits.steps:
            raise RenderLimitExceeded(f"the template ran more than {self.limits.steps} steps")
        if time.monotonic() > self._deadline:
            raise RenderLimitExceeded(f"the template ran longer than {self.limits.seconds:g} s")
        return True

    def charge(self, size: int) -> None:
        """Refuse a text of `size` characters before it is made."""
        if size > self.limits.chars:
            raise RenderLimitExceeded(f"the template makes a text of more than {self.limits.chars} characters")

    def charge_items(self, count: int) -> None:
        """Refuse a list of `count` items before it is made."""
        if count > self.limits.items:
            raise RenderLimitExceeded(f"the template makes a list of more than {self.limits.items} items")

    def bounded(self, value: Any) -> Any:
        """The value itself, if it is not too large to keep."""
        if isinstance(value, str):
            self.charge(len(value))
        elif isinstance(value, (list, tuple, dict)):
            self.charge_items(len(value))
        return value


def flat_size(values: Iterable[Any]) -> int:
    """Characters of the texts in `values`; other things count a little."""
    return sum(len(value) if isinstance(value, str) else 16 for value in values)

"""The last lines of the gateway's own log, and a way to follow it."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

LINES_KEPT = 400


class LogRing(logging.Handler):
    """Keeps lines as they were written, after redaction. Followers are called with each further line."""

    def __init__(self, kept: int = LINES_KEPT) -> None:
        super().__init__()
        self._lines: deque[str] = deque(maxlen=kept)
        self._followers: list[Callable[[str], None]] = []

    @property
    def lines(self) -> tuple[str, ...]:
        """Oldest first."""
        return tuple(self._lines)

    def follow(self, follower: Callable[[str], None]) -> Callable[[], None]:
        """Call `follower` with every further line until the function returned is called. It must not log."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001  (what every handler of the library does)
            self.handleError(record)
            return
        self._lines.append(line)
        for follower in tuple(self._followers):
            follower(line)

"""The output of a child: drained on the event loop, its last lines kept, every line to the log at debug."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable

log = logging.getLogger("llamaherd.child")

LINES_KEPT = 400
LINE_LIMIT = 4096
"""Bytes of a line that are kept; the rest is dropped."""
READ_SIZE = 64 * 1024

Follower = Callable[[str], None]


class ChildLog:
    """Keeps the last lines of one child. It reads as fast as the child writes, so that no child ever blocks on it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._followers: list[Follower] = []
        self._partial = b""
        self._fd = -1

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that are kept, oldest first."""
        return tuple(self._lines)

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Call `follower` with every further line until the function returned is called. It must not block."""
        self._followers.append(follower)
        return lambda: self._followers.remove(follower)

    def open(self, fd: int) -> None:
        """Begin to drain a non-blocking descriptor, which belongs to this object from now on."""
        self._fd = fd
        asyncio.get_running_loop().add_reader(fd, self._read)

    def close(self) -> None:
        """Take what is there and stop: descendants of a dead child may hold the other end for ever."""
        while self._fd >= 0 and self._read():
            pass
        self._finish()

    def note(self, line: str) -> None:
        """Add a line."""
        self._lines.append(line)
        log.debug("%s: %s", self.name, line)
        for follower in list(self._followers):
            follower(line)

    def _read(self) -> bool:
        """Read once. Says whether there was anything."""
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            self._finish()
            return False
        *whole, rest = (self._partial + data).split(b"\n")
        for line in whole:
            self._take(line)
        self._partial = rest[:LINE_LIMIT]
        return True

    def _finish(self) -> None:
        if self._fd < 0:
            return
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1
        if self._partial:
            self._take(self._partial)
            self._partial = b""

    def _take(self, line: bytes) -> None:
        # A progress bar redraws its line: what counts is the last state.
        text = line.rstrip(b"\r")[:LINE_LIMIT].decode(errors="replace").rsplit("\r", 1)[-1]
        self.note(text)

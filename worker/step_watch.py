"""Ends a running step early when nobody wants its result any longer."""

from __future__ import annotations

import threading
from typing import Protocol

from protocol.codec import Control
from protocol.control import Cancel, Shutdown
from protocol.download import ToDownloader


class Switch(Protocol):
    """Ends the engine's computation from another thread."""

    def throw(self) -> None: ...

    def reset(self) -> None: ...


class StepWatch:
    """Knows whose tokens the running step carries, and throws the switch once all of them are cancelled.

    `seen` is called on the I/O thread, the rest on the decode thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._switch: Switch | None = None
        self._carried: frozenset[int] = frozenset()
        self._cancelled: set[int] = set()
        self._shut_down = False

    def guard(self, switch: Switch | None) -> None:
        """From now on the steps of this engine are watched."""
        with self._lock:
            self._switch = switch
            if switch is not None and self._shut_down:
                switch.throw()

    def begin(self, requests: frozenset[int]) -> None:
        """A step begins that carries tokens of these requests alone."""
        with self._lock:
            self._carried = requests
            if self._switch is not None and not self._shut_down:
                self._switch.reset()

    def end(self) -> None:
        with self._lock:
            self._carried = frozenset()
            self._cancelled.clear()

    def seen(self, message: Control | ToDownloader) -> None:
        """A control message has arrived."""
        with self._lock:
            if isinstance(message, Shutdown):
                self._shut_down = True
            elif isinstance(message, Cancel):
                self._cancelled.add(message.request)
            else:
                return
            unwanted = self._carried and self._carried <= self._cancelled
            if self._switch is not None and (self._shut_down or unwanted):
                self._switch.throw()

"""The two queues between a child's I/O thread and the threads that do the work."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, Protocol, TypeVar

Message = TypeVar("Message")


class Numbered(Protocol):
    """A message that belongs to a request."""

    @property
    def request(self) -> int: ...


Request = TypeVar("Request", bound=Numbered)


class Lane(Generic[Message]):
    """A first-in-first-out queue with one thread that reads it."""

    def __init__(self) -> None:
        self.activity = threading.Condition()
        """Notified whenever a message comes; what else its reader waits for may be announced through it too."""
        self._waiting: deque[Message] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def push(self, message: Message) -> None:
        with self.activity:
            self._waiting.append(message)
            self.activity.notify()

    def pop(self) -> Message | None:
        """The oldest message, or None; never blocks for longer than another thread's push."""
        if not self._waiting:  # asked for between any two decode steps: no lock when there is nothing
            return None
        with self.activity:
            return self._waiting.popleft() if self._waiting else None

    def wait(self, timeout: float | None = None) -> bool:
        """Block until this lane holds a message, at most `timeout` seconds. Says whether it does."""
        with self.activity:
            return self.activity.wait_for(lambda: bool(self._waiting), timeout)


class WorkLane(Lane[Request]):
    """A lane of requests."""

    def requests(self) -> tuple[int, ...]:
        """The requests that wait, oldest first."""
        with self.activity:
            return tuple(message.request for message in self._waiting)

    def remove(self, request: int) -> bool:
        """Take a request out before anybody has popped it. Says whether it was there."""
        with self.activity:
            for message in self._waiting:
                if message.request == request:
                    self._waiting.remove(message)
                    return True
            return False

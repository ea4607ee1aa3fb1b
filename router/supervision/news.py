"""What happened to models, for whoever follows it: numbered, kept for a while, and never waiting for a reader."""

from __future__ import annotations

import asyncio
import time
from collections import deque

from msgspec import Struct

from protocol.load import ModelInfo
from router.scheduling.views import ModelView

KEPT = 1000

WOKEN = 16
"""Subscribers that are woken in one turn of the event loop: between two turns others are served."""


class News(Struct, frozen=True):
    """One event. `view` is the model at that moment, `info` its facts if it is loaded, `data` JSON for other events."""

    id: int
    key: str
    event: str
    view: ModelView | None = None
    info: ModelInfo | None = None
    data: bytes = b""


class NewsMissed(Exception):
    """The next event is no longer kept: begin anew with a snapshot."""


class NewsHub:
    """The last events and a way to wait for the next. A subscriber is a number: slow and gone ones cost nothing."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept: deque[News] = deque(maxlen=kept)
        # Ids of an earlier router must not look like ours to a client that comes back with one.
        self.last_id = int(time.time() * 1000) << 12
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._waking: deque[asyncio.Future[None]] = deque()

    def publish(
        self, key: str, event: str, view: ModelView | None = None, info: ModelInfo | None = None, data: bytes = b""
    ) -> None:
        """Number an event and wake everybody who waits."""
        self.last_id += 1
        self._kept.append(News(self.last_id, key, event, view, info, data))
        if self._waiting and not self._waking:
            asyncio.get_running_loop().call_soon(self._wake)
        self._waking.extend(self._waiting)
        self._waiting.clear()

    def _wake(self) -> None:
        for _ in range(min(WOKEN, len(self._waking))):
            waiter = self._waking.popleft()
            if not waiter.done():
                waiter.set_result(None)
        if self._waking:
            asyncio.get_running_loop().call_soon(self._wake)

    def subscribe(self, last_id: int | None = None) -> Subscription:
        """Follow from behind `last_id`, by default from now on."""
        return Subscription(self, self.last_id if last_id is None else last_id)

    def after(self, last_id: int) -> News | None:
        """The event behind `last_id`; None if there is none yet. Raises `NewsMissed`."""
        if last_id == self.last_id:
            return None
        index = last_id + 1 - self._kept[0].id if self._kept else -1
        if not 0 <= index < len(self._kept):
            raise NewsMissed
        return self._kept[index]

    async def changed(self, timeout: float | None) -> bool:
        """Wait for the next event, at most `timeout` seconds. Says whether there was one."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[waiter] = None
        try:
            async with asyncio.timeout(timeout):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiting.pop(waiter, None)
        return True


class Subscription:
    """A place in the news."""

    def __init__(self, hub: NewsHub, last_id: int) -> None:
        self._hub = hub
        self.last_id = last_id

    async def next(self, timeout: float | None = None) -> News | None:
        """The next event; None when there is none for `timeout` seconds.

        Raises `NewsMissed` once when events were dropped, and goes on with those that come after it.
        """
        while True:
            try:
                news = self._hub.after(self.last_id)
            except NewsMissed:
                self.last_id = self._hub.last_id
                raise
            if news is not None:
                self.last_id = news.id
                return news
            if not await self._hub.changed(timeout):
                return None

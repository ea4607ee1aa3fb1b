"""What has to be looked at from time to time, because nothing announces it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from router.scheduling.events import ChildProgressed, Event
from router.supervision.activity import ActivityMeter
from router.supervision.requests import RequestBook
from router.supervision.worker_table import WorkerTable


class Rounds:
    """Every `interval` seconds: do starting and loading processes work, and is a stream silent beyond `heartbeat`?"""

    def __init__(
        self,
        post: Callable[[Event], None],
        book: RequestBook,
        table: WorkerTable,
        *,
        heartbeat: float,
        interval: float,
    ) -> None:
        self._post = post
        self._book = book
        self._table = table
        self._heartbeat = heartbeat
        self._interval = interval
        self._activity = ActivityMeter()
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._go)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _go(self) -> None:
        preparing = [record for record in self._table.records() if record.preparing]
        for record in preparing:
            if self._activity.has_worked(record.pid):
                self._post(ChildProgressed(record.child))
        self._activity.keep({record.pid for record in preparing})
        if self._heartbeat > 0:
            silent_since = time.monotonic() - self._heartbeat
            for stream in self._book.streams:
                if stream.last_write < silent_since:
                    stream.show_life()
        self.open()

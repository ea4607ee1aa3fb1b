"""Keeps the service manager informed while the gateway runs: signs of life, and one line of status."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from router.notify import Notifier

log = logging.getLogger("llamaherd")

STATUS_INTERVAL = 5.0
"""Seconds between two looks at the status; a sign of life may be due more often."""


class ServiceManager:
    """`summary` makes the line of status. `healthy` says whether a sign of life may be given: without one, a manager
    that watches ends this process and starts another.
    """

    def __init__(
        self, notifier: Notifier, watchdog: float | None, summary: Callable[[], str], healthy: Callable[[], bool]
    ) -> None:
        self._notifier = notifier
        self._watchdog = watchdog
        self._summary = summary
        self._healthy = healthy
        self._told = ""
        self._task: asyncio.Task[None] | None = None

    def ready(self) -> None:
        """The sockets listen. From now on there are signs of life."""
        self._told = self._summary()
        self._notifier.ready(self._told)
        if self._notifier.active:
            self._task = asyncio.create_task(self._tell(), name="service manager")

    def reloading(self) -> None:
        self._notifier.reloading()

    def reloaded(self) -> None:
        self._told = self._summary()
        self._notifier.ready(self._told)

    def stopping(self, status: str) -> None:
        """Signs of life go on while requests come to their end."""
        self._told = status
        self._notifier.stopping(status)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self._notifier.close()

    async def _tell(self) -> None:
        interval = min(STATUS_INTERVAL, self._watchdog or STATUS_INTERVAL)
        while True:
            if self._watchdog is not None and self._healthy():
                self._notifier.watchdog()
            summary = self._summary()
            if summary != self._told:
                self._told = summary
                self._notifier.status(summary)
            await asyncio.sleep(interval)  # noqa: TID251  (a clock, not a wait for something)

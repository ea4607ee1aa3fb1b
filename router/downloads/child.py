"""The downloader process: started on first use, started again when it dies, killed when it hangs."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

from protocol.codec import FromChild, ToChild
from protocol.control import QueryStatus
from protocol.status import UpdateStatus
from router.scheduling.events import Child, ExitReason, ExitReport
from router.supervision.environment import downloader_environment
from router.supervision.nursery import Nursery
from router.supervision.process import Command, python_command
from router.transport.link import ChildGone

PLACE = "d"
"""The name of the downloader's place among the children."""

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
STABLE = 30.0
"""Seconds of life after which a death starts the count of failures anew."""
GIVE_UP = 6
"""Deaths in a row after which the downloader is not started again until somebody asks for a download."""
ASK_EVERY = 10.0
WEDGED_AFTER = 60.0
"""Seconds without a step of its loop after which it counts as hung."""

log = logging.getLogger("llamaherd.downloads")


class DownloaderProcess:
    """Keeps one downloader running for as long as it is wanted.

    `on_connected` is called for each incarnation, `on_message` with what it says, `on_failed(words)` when it has died
    too often. It is a `Listener` of the nursery; all of it runs on the event loop.
    """

    def __init__(
        self,
        nursery: Nursery,
        token: str,
        on_connected: Callable[[], None],
        on_message: Callable[[FromChild], None],
        on_lost: Callable[[], None],
        on_failed: Callable[[str], None],
        command: Command | None = None,
    ) -> None:
        self._nursery = nursery
        self._secrets = (("HF_TOKEN", token),) if token else ()
        self._on_connected = on_connected
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._command = command or python_command("downloader", downloader_environment(os.environ))
        self._child: Child | None = None
        self._epoch = 0
        self._connected = False
        self._failures = 0
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False
        self._step = -1
        self._step_since = 0.0

    @property
    def pid(self) -> int:
        """Its process id, 0 when there is none."""
        return self._nursery.pid(self._child) if self._child is not None else 0

    def want(self) -> None:
        """Have it run. Harmless when it does."""
        if self._child is None and not self._closing and self._timer is None:
            self._spawn()

    def send(self, message: ToChild) -> bool:
        """Send if it is connected; False if not: `on_connected` is the time to say everything again."""
        if self._child is None or not self._connected:
            return False
        try:
            self._nursery.send(self._child, message)
        except ChildGone:
            return False
        return True

    def close(self) -> None:
        """Do not start it again; whoever closes the nursery ends it."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _spawn(self) -> None:
        self._timer = None
        self._epoch += 1
        child = Child(PLACE, self._epoch)
        self._since = asyncio.get_running_loop().time()
        try:
            self._nursery.spawn(child, self._command, self, self._secrets)
        except OSError as error:
            self._died(f"the downloader cannot be started: {error}")
        else:
            self._child = child

    def _died(self, words: str) -> None:
        loop = asyncio.get_running_loop()
        self._child = None
        self._connected = False
        if self._closing:
            return
        self._failures = 1 if loop.time() - self._since > STABLE else self._failures + 1
        self._on_lost()
        if self._failures >= GIVE_UP:
            self._failures = 0
            self._on_failed(words)
            return
        pause = min(FIRST_PAUSE * 2.0 ** (self._failures - 1), LONGEST_PAUSE)
        log.error("the downloader ended (%s); it is started again in %.1f s", words, pause)
        self._timer = loop.call_later(pause, self._spawn)

    def _watch(self, child: Child) -> None:
        """Ask for a sign of life, and judge the last one."""
        loop = asyncio.get_running_loop()
        if child != self._child or self._closing:
            return
        if loop.time() - self._step_since > WEDGED_AFTER:
            log.error("the downloader hangs and is replaced")
            self._nursery.kill(child, ExitReason.WEDGED, dump=True)
            return
        self.send(QueryStatus(self._epoch))
        loop.call_later(ASK_EVERY, self._watch, child)

    # What the nursery tells

    def connected(self, child: Child) -> None:
        self._connected = True
        self._step = -1
        self._step_since = asyncio.get_running_loop().time()
        self._watch(child)
        self._on_connected()

    def received(self, child: Child, message: FromChild) -> None:
        if isinstance(message, UpdateStatus):
            if message.step != self._step:
                self._step = message.step
                self._step_since = asyncio.get_running_loop().time()
        else:
            self._on_message(message)

    def exited(self, child: Child, report: ExitReport) -> None:
        if child == self._child:
            self._died(report.message)

    def stuck(self, child: Child) -> None:
        log.error("the downloader %s is stuck in the kernel", child)

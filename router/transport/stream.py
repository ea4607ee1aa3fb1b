"""One request's answer between the socket that brings it and the clients that read it."""

from __future__ import annotations

import asyncio
import enum
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from protocol.codec import Answer
from protocol.errors import ErrorKind, WireError
from protocol.generate import Delta
from router.scheduling.effects import Phase
from router.transport.encoder import Encoder
from router.transport.ring import ByteRing

log = logging.getLogger("llamaherd.transport")

Item = TypeVar("Item")

CAPACITY = 4 << 20
"""Bytes that a stream keeps for its readers."""


class ReaderTooSlow(Exception):
    """The bytes that a reader wants next are no longer held."""


class Outcome(enum.Enum):
    """What a request has come to when its response may begin."""

    OUTPUT = "output"
    """There are bytes of an answer."""
    FAILED = "failed"
    """It has failed before a client saw output: `RequestStream.failure` says why, and a status can still be sent."""
    SILENT = "silent"
    """Nothing yet; from now on the stream shows signs of life."""


class RequestStream:
    """A bounded ring of encoded output, written by the owner of the requests and read by any number of clients.

    The writer's side is synchronous and never waits: output is encoded straight into the ring and the readers are
    woken. `on_answered` is called once, when the first byte of an answer is handed to a reader; comments do not count.
    All of it runs on the event loop.
    """

    def __init__(
        self,
        request: int,
        encoder: Encoder,
        on_answered: Callable[[], None] | None = None,
        capacity: int = CAPACITY,
    ) -> None:
        self.request = request
        self.encoder = encoder
        self.failure: WireError | None = None
        self.phase = Phase.QUEUED
        self.position = 0
        self.progress = 0.0
        self.readers = 0
        """Clients that read now; kept by the HTTP layer through `attach` and `detach`."""
        self.created = time.time()
        self.completed = 0.0
        """Unix seconds of the end, 0 while it runs."""
        self.last_write = time.monotonic()
        self._on_answered = on_answered
        # A body that comes whole at the end is one answer: it is never cut.
        self._ring = ByteRing(capacity if encoder.streams else None)
        self._begun_at: int | None = None
        self._answered = False
        self._speaking = False
        self._waiters: set[asyncio.Future[bool]] = set()

    # For everybody

    @property
    def start(self) -> int:
        """Offset of the oldest byte that can still be read."""
        return self._ring.start

    @property
    def end(self) -> int:
        """Bytes written so far."""
        return self._ring.end

    @property
    def ended(self) -> bool:
        return self.completed > 0

    @property
    def answered(self) -> bool:
        """Whether a client has been given a byte of the answer: no other worker may begin it anew."""
        return self._answered

    @property
    def begun(self) -> bool:
        """Whether there is output."""
        return self._begun_at is not None

    # The writer's side

    def delta(self, delta: Delta) -> None:
        """Append what a decode step added. Ignored behind the end."""
        if self.ended:
            return
        data = self._encode(self.encoder.delta, delta)
        if data is not None:
            self._write(data)

    def answer(self, answer: Answer) -> None:
        """Append the end of the answer and close. Ignored behind the end."""
        if self.ended:
            return
        data = self._encode(self.encoder.end, answer)
        if data is not None:
            self._close(data)

    def fail(self, error: WireError) -> None:
        """Close with an error: as `failure` before any output, as an event of the stream in any case."""
        if self.ended:
            return
        self.failure = error
        self._close(self.encoder.error(error))

    def notify(self, phase: Phase, position: int = 0, progress: float = 0.0) -> None:
        """Note what the request waits for; shown as a comment while the stream is silent."""
        changed = (phase, position, round(progress * 100)) != (self.phase, self.position, round(self.progress * 100))
        self.phase, self.position, self.progress = phase, position, progress
        if changed:
            self.show_life()

    def show_life(self) -> None:
        """Append a comment if clients wait for one: after `SILENT`, where the format has comments, before the end."""
        if self._speaking and self.encoder.comments and not self.ended:
            self._write(self.encoder.comment(self._words()))

    def restart(self) -> None:
        """Forget output that no client has seen: the request begins anew. Raises `ValueError` if one has."""
        if self._answered:
            raise ValueError(f"request {self.request} has been answered")
        if self._begun_at is not None:
            self._ring.truncate(self._begun_at)
            self._begun_at = None

    # The readers' side

    def attach(self) -> None:
        self.readers += 1

    def detach(self) -> None:
        self.readers -= 1

    async def outcome(self, timeout: float | None = None) -> Outcome:
        """Wait for the first output or a failure; `SILENT` after `timeout` seconds without either."""
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            if self.failure is not None and not self._answered:
                return Outcome.FAILED
            if self.ended or (self.encoder.streams and self._has_output()):
                return Outcome.OUTPUT
            if not await self._changed(deadline):
                self._speaking = True
                self.show_life()
                return Outcome.SILENT

    async def read(self, offset: int) -> bytes:
        """Bytes from `offset` on as soon as there are any; empty at the end.

        Raises `ReaderTooSlow` when they have been overwritten, `ValueError` for an offset that was never written.
        """
        while True:
            if offset < self._ring.start:
                raise ReaderTooSlow(f"offset {offset} is lost, the stream begins at {self._ring.start}")
            if offset < self._ring.end:
                data = self._ring.read(offset)
                self._note_answered()
                return data
            if offset > self._ring.end:
                raise ValueError(f"offset {offset} is behind the end, {self._ring.end}")
            if self.ended:
                return b""
            await self._changed(None)

    # Inside

    def _begin(self) -> bytes:
        if self._begun_at is not None:
            return b""
        self._begun_at = self._ring.end
        return self.encoder.begin()

    def _write(self, data: bytes) -> None:
        if data:
            self.last_write = time.monotonic()
            self._ring.append(data)
        if data or self.ended:
            for waiter in self._waiters:
                _settle(waiter, True)

    def _encode(self, encode: Callable[[Item], bytes], item: Item) -> bytes | None:
        """The bytes of a piece of output; None when the encoder fails, which ends this request and no other."""
        try:
            return self._begin() + encode(item)
        except Exception:
            log.exception("request %d cannot be encoded", self.request)
            self.fail(WireError(ErrorKind.INTERNAL, "the answer could not be encoded"))
            return None

    def _close(self, data: bytes) -> None:
        self.completed = time.time()
        self._write(data)

    def _has_output(self) -> bool:
        return self._begun_at is not None and self._ring.end > self._begun_at

    def _note_answered(self) -> None:
        if not self._answered and self._has_output():
            self._answered = True
            if self._on_answered is not None:
                self._on_answered()

    def _words(self) -> str:
        if self.phase is Phase.QUEUED:
            return f"queued {self.position}"
        if self.phase is Phase.RUNNING:
            return f"prefill {self.progress:.0%}" if 0 < self.progress < 1 else "running"
        return f"{self.phase} {self.progress:.0%}" if self.progress else str(self.phase)

    async def _changed(self, deadline: float | None) -> bool:
        """Wait for the next write. Says whether it came before `deadline`, in the loop's time."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiters.add(waiter)
        alarm = None if deadline is None else loop.call_at(deadline, _settle, waiter, False)
        try:
            return await waiter
        finally:
            self._waiters.discard(waiter)
            if alarm is not None:
                alarm.cancel()


def _settle(waiter: asyncio.Future[bool], written: bool) -> None:
    if not waiter.done():
        waiter.set_result(written)

"""`GET /logs`: the last words of a model's worker, or of the gateway itself, followed while they grow."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from router.config.model import Model
from router.http.call import Call, Response
from router.http.connection import WhileConnected
from router.http.decoding import decode
from router.http.errors import invalid, model_not_found
from router.http.replies import Reply, json_reply
from router.http.routing import Route
from router.http.services import Services
from router.logs.setup import RING, UnknownLevel, current_level, set_level

TEXT = b"text/plain; charset=utf-8"
LOOK_AGAIN = 1.0
"""Seconds after which a follower looks whether the model has another worker by now."""
BACKLOG = 2000
"""Lines that wait for a slow reader; older ones are dropped."""


class LineSource(Protocol):
    """A log that keeps its last lines."""

    @property
    def lines(self) -> tuple[str, ...]: ...

    def follow(self, follower: Callable[[str], None]) -> Callable[[], None]: ...


class LevelRequest(Struct):
    level: str


_level: msgspec.json.Decoder[LevelRequest] = msgspec.json.Decoder(LevelRequest)


class Logs:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/logs", self.logs),
            Route("GET", "/log-level", self.level),
            Route("POST", "/log-level", self.set_level),
        ]

    async def logs(self, call: Call) -> Response:
        name = call.query.get("model")
        if not name:
            return self._answer(call, lambda: RING)
        model = self._services.visible(call, name)
        if model is None:
            raise model_not_found(name)
        return self._answer(call, lambda: self._log_of(model))

    def _answer(self, call: Call, find: Callable[[], LineSource]) -> Response:
        lines = call.query.get("lines", "")
        if lines and not lines.isdecimal():
            raise invalid(f"lines: expected a whole number, got '{lines}'", "lines")
        count = int(lines) if lines else None
        if call.flag("follow", False):
            return _Following(find, count, self._services.closing)
        return Reply(_text(_last(find().lines, count)), media_type=TEXT)

    def _log_of(self, model: Model) -> LineSource:
        """The log of the worker that the model has; else the last lines of the one that it had."""
        owner = self._services.owner
        log = owner.log(model.key) if model.key else None
        if log is not None:
            return log
        view = owner.view(model.key) if model.key else None
        return _Ended(view.exit.stderr if view is not None and view.exit is not None else ())

    async def level(self, call: Call) -> Response:
        return json_reply({"level": current_level()})

    async def set_level(self, call: Call) -> Response:
        try:
            set_level(decode(_level, await call.body()).level)
        except UnknownLevel as error:
            raise invalid(str(error), "level") from error
        return json_reply({"level": current_level()})


class _Ended:
    """The log of a worker that is no more."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        self.lines = lines

    def follow(self, follower: Callable[[str], None]) -> Callable[[], None]:
        return lambda: None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ended) and other.lines == self.lines

    __hash__ = None  # type: ignore[assignment]


class _Following:
    """Sends a log as it grows; goes on with the next worker's when the model gets another one."""

    def __init__(self, find: Callable[[], LineSource], count: int | None, closing: asyncio.Event) -> None:
        self._find = find
        self._count = count
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", TEXT), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with WhileConnected(receive):
            source = self._find()
            lines = _last(source.lines, self._count)
            while not self._closing.is_set():
                await _send_lines(send, lines)
                lines = await self._next(send, source)
                source = self._find()
        await send({"type": "http.response.body", "body": b""})

    async def _next(self, send: Send, source: LineSource) -> tuple[str, ...]:
        """Send what is added to `source` for as long as it is the log to follow; returns the beginning of the next."""
        waiting: deque[str] = deque(maxlen=BACKLOG)
        added = asyncio.Event()

        def take(line: str) -> None:
            waiting.append(line)
            added.set()

        leave = source.follow(take)
        try:
            while not self._closing.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(added.wait(), LOOK_AGAIN)
                added.clear()
                lines = tuple(waiting)
                waiting.clear()
                await _send_lines(send, lines)
                if self._find() != source:
                    return self._find().lines
            return ()
        finally:
            leave()


async def _send_lines(send: Send, lines: tuple[str, ...]) -> None:
    if lines:
        await send({"type": "http.response.body", "body": _text(lines), "more_body": True})


def _last(lines: tuple[str, ...], count: int | None) -> tuple[str, ...]:
    return lines if count is None else lines[len(lines) - min(count, len(lines)) :]


def _text(lines: tuple[str, ...]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")

"""uvicorn's protocol with a bound on what comes before a request's body, and on the number of connections."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from router.http.corked import CorkedTransport
from router.http.errors import ApiError, Dialect
from router.http.replies import error_reply

MAX_HEAD = 64 * 1024
"""Bytes of a request line and its headers; a chunk more may arrive before it is noticed."""
HEAD_TIMEOUT = 30.0
"""Seconds from the start of a connection, or of a further request on it, to the end of the headers."""

RETRY_AFTER = 1.0


class GuardedProtocol(HttpToolsProtocol):
    """Closes connections whose headers are too large (431) or never end (408). The parser itself has no bounds.

    Requests on more connections than are allowed get a 503 that clients can read; uvicorn's own is plain text.
    """

    max_head = MAX_HEAD
    head_timeout = HEAD_TIMEOUT

    _head = 0
    _in_head = True
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._most, self.limit_concurrency = self.limit_concurrency, None
        self._served = self.app

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.transport = CorkedTransport(transport, self.loop)  # type: ignore[assignment]  # delegates the rest
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_over()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._in_head:
            self._head += len(data)
            if self._head > self.max_head:
                self._refuse(b"431 Request Header Fields Too Large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if not self._in_head:
            self._await_head()

    def on_headers_complete(self) -> None:
        self._head_is_over()
        crowded = self._most is not None and len(self.connections) > self._most
        self.app = _refuse_connection if crowded else self._served
        super().on_headers_complete()

    def _await_head(self) -> None:
        self._head = 0
        self._in_head = True
        self._deadline = self.loop.call_later(self.head_timeout, self._refuse, b"408 Request Timeout")

    def _head_is_over(self) -> None:
        self._in_head = False
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: bytes) -> None:
        self._head_is_over()
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()


async def _refuse_connection(scope: Scope, receive: Receive, send: Send) -> None:
    error = ApiError(503, "unavailable_error", "too many connections to this gateway", retry_after=RETRY_AFTER)
    await error_reply(Dialect.OPENAI, error)(scope, receive, send)

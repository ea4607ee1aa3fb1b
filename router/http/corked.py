"""A transport whose writes of one turn of the event loop leave together."""

from __future__ import annotations

import asyncio
from typing import Any


class CorkedTransport:
    """Wraps the transport of a connection.

    An answer's head and its body are two writes. Sent one by one they are two system calls and two packets, and wake
    the client twice.
    """

    __slots__ = ("_loop", "_pending", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def write(self, data: bytes) -> None:
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._pending:
            pieces, self._pending = self._pending, []
            self._transport.writelines(pieces)

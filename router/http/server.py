"""uvicorn, with the signals left to the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator

import uvicorn
from starlette.types import ASGIApp

from router.http.guarded import GuardedProtocol
from router.http.version import VERSION

KEEP_ALIVE = 75
"""Seconds an idle connection is kept: longer than the pools of common clients keep theirs."""

FLUSH = 5
"""Seconds that answers have to leave once the gateway closes."""


class Server(uvicorn.Server):
    """Listens until `close` is called. uvicorn's own handlers would close the listeners at once and raise the
    signal again afterwards; the gateway drains first and ends with status 0."""

    _end: asyncio.Event | None = None

    @classmethod
    def of(
        cls, app: ASGIApp, *, ssl_key_file: str = "", ssl_cert_file: str = "", connection_limit: int | None = None
    ) -> Server:
        return cls(
            uvicorn.Config(
                app,
                loop="uvloop",
                http=GuardedProtocol,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                headers=[("server", f"llamaherd/{VERSION}")],
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=FLUSH,
                limit_concurrency=connection_limit or None,
                ssl_keyfile=ssl_key_file or None,
                ssl_certfile=ssl_cert_file or None,
            )
        )

    async def main_loop(self) -> None:
        """Keep the date of answers right. uvicorn wakes up ten times a second for that and to look for an end."""
        self._end = asyncio.Event()
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._end.wait(), 1.0)

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    def run_in_background(self, sockets: list[socket.socket]) -> asyncio.Task[None]:
        return asyncio.create_task(self.serve(sockets=sockets), name="http server")

    def close(self) -> None:
        """Stop listening; connections in the middle of an answer have `FLUSH` seconds."""
        self.should_exit = True
        if self._end is not None:
            self._end.set()

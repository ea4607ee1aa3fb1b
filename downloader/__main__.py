"""The downloader process, started by the router as `python -P -m downloader`."""

from __future__ import annotations

import asyncio
import faulthandler
import importlib.metadata
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

from downloader.service import Downloader
from protocol.bootstrap import Bootstrap, read_bootstrap
from protocol.channel import Channel, ConnectionLost, RefusedByRouter
from protocol.control import Shutdown
from protocol.download import ToDownloader
from protocol.errors import ExitCode
from protocol.handshake import PROTOCOL_VERSION, Hello
from protocol.parent_watch import die_with_parent, watch_parent
from protocol.status import UpdateStatus, WorkerState

TOKEN = "HF_TOKEN"
"""The name of the hub's access token among the bootstrap's secrets."""

BEAT = 1.0
"""Seconds between two steps of the count that tells the router of a living event loop."""

_LINGER = 1.0

_log = logging.getLogger(__name__)


class Process:
    """Ties the channel's threads to the event loop of the downloader."""

    def __init__(self, bootstrap: Bootstrap) -> None:
        hello = Hello(PROTOCOL_VERSION, importlib.metadata.version("llamaherd"), os.getpid(), "downloader")
        self._channel = Channel(bootstrap, hello, self._status)
        self._downloader = Downloader(self._channel.send, dict(bootstrap.secrets).get(TOKEN, ""), os.environ)
        self._revision = 0
        self._beats = 0

    async def run(self) -> None:
        """Serve until the router says `Shutdown`."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        self._channel.start()
        pump = threading.Thread(target=self._pump, args=(loop.call_soon_threadsafe, stop), name="pump", daemon=True)
        pump.start()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        self._beat(loop)
        loop.set_exception_handler(_crash)
        await stop.wait()
        await self._downloader.close()
        self._channel.close(_LINGER)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count as long as the loop runs; the I/O thread, which answers for us, would not notice."""
        self._beats += 1
        loop.call_later(BEAT, self._beat, loop)

    def _pump(self, post: Callable[..., object], stop: asyncio.Event) -> None:
        while True:
            self._channel.control.wait()
            while (message := self._channel.control.pop()) is not None:
                if isinstance(message, Shutdown):
                    post(stop.set)
                elif isinstance(message, ToDownloader):
                    post(self._downloader.handle, message)
                else:
                    _log.warning("a downloader has no use for %s", type(message).__name__)

    def _status(self, nonce: int) -> UpdateStatus:
        self._revision += 1
        return UpdateStatus(self._revision, WorkerState.READY, answers=nonce, step=self._beats)


def _crash(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A fault of ours in a callback. The router sees the process end, starts a new one and rebuilds the queue."""
    loop.default_exception_handler(context)
    if "exception" in context:
        os._exit(ExitCode.CRASH)


def main() -> int:
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    bootstrap = read_bootstrap(sys.stdin.fileno())
    die_with_parent(bootstrap.parent)
    watch_parent(sys.stdin.fileno())
    try:
        asyncio.run(Process(bootstrap).run())
    except RefusedByRouter as error:
        _log.error("%s", error)
        return ExitCode.REFUSED
    except ConnectionLost as error:
        _log.error("%s", error)
        return ExitCode.CONNECTION_LOST
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main())

"""Notices that a client has left while its answer is still being made."""

from __future__ import annotations

import asyncio
from types import TracebackType

from starlette.types import Receive

from router.http.errors import ClientGone

PATIENCE = 0.01
"""Seconds for which nobody looks whether a client is still there: most answers need less, and a look is a task."""


class WhileConnected:
    """Ends its block with `ClientGone` soon after the client has closed the connection.

    To be entered once the body has been read: from then on ASGI's `receive` answers only when the client goes.
    """

    __slots__ = ("_gone", "_receive", "_task", "_timer", "_watch")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._gone = False

    def __enter__(self) -> WhileConnected:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("only a task has a client")
        self._task = task
        self._watch: asyncio.Task[None] | None = None
        self._timer = task.get_loop().call_later(PATIENCE, self._begin)
        return self

    def _begin(self) -> None:
        self._watch = asyncio.create_task(self._wait())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = self._task
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        # The watch ends with a traceback that holds this object: a reference back would keep both until the next
        # collection of cycles, and with them all that belongs to the request.
        del self._timer, self._watch, self._task
        if self._gone and isinstance(error, asyncio.CancelledError):
            # Somebody else's cancellation, if there is one besides ours, goes on.
            if task.uncancel() > 0:
                return
            raise ClientGone from None

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True
        self._task.cancel()

"""Streams that outlive their connection: kept by conversation id, read again, stopped, and reaped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator

from msgspec import Struct

from router.http.errors import ApiError
from router.inference import Inference, Ticket

log = logging.getLogger("llamaherd.streams")

FINISHED_KEPT = 300.0
"""Seconds that a finished stream can be read again."""
SWEEP_INTERVAL = 2.0

Key = tuple[str, str]
"""Whose conversation, and its id."""


class Conversation(Struct, eq=False):
    """`alone_since` is when its last reader left, in monotonic seconds; None while there is one."""

    id: str
    ticket: Ticket
    alone_since: float | None = None

    @property
    def size(self) -> int:
        """Bytes held."""
        return self.ticket.stream.end - self.ticket.stream.start


class Conversations:
    """`total` bounds the bytes of all kept streams, `detached` is how many seconds one may run without a reader."""

    def __init__(self, inference: Inference, *, total: int, detached: float) -> None:
        self._inference = inference
        self._total = total
        self._detached = detached
        self._kept: dict[Key, Conversation] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, id: str, ticket: Ticket) -> None:
        """Keep a stream under this id. One that was there before is stopped: a conversation has one stream."""
        self.stop(id, ticket.owner)
        ticket.kept = True
        self._kept[ticket.owner, id] = Conversation(id, ticket)
        if self._timer is None:
            self._arm()

    def make_room(self) -> None:
        """Drop finished streams, oldest first, until the total is kept. Raises `ApiError` 429 if that is not enough."""
        excess = sum(entry.size for entry in self._kept.values()) - self._total
        if excess < 0:
            return
        finished = [(key, entry) for key, entry in self._kept.items() if entry.ticket.stream.ended]
        for key, entry in sorted(finished, key=lambda item: item[1].ticket.stream.completed):
            excess -= entry.size
            self._drop(key)
            if excess < 0:
                return
        raise ApiError(429, "rate_limit_error", "too many streams are kept; try again later", retry_after=5.0)

    def find(self, id: str, owner: str) -> Conversation | None:
        """The stream of this conversation, if it belongs to this key and has not failed before it began."""
        entry = self._kept.get((owner, id))
        if entry is not None and not self._inference.holds(entry.ticket):
            del self._kept[owner, id]
            return None
        return entry

    def stop(self, id: str, owner: str) -> None:
        """End a stream and forget it. Harmless where there is none."""
        entry = self.find(id, owner)
        if entry is not None:
            self._inference.cancel(entry.ticket, "the stream was stopped")
            self._drop((owner, id))

    def known(self, ids: Iterable[str], owner: str) -> Iterator[Conversation]:
        """Those of these conversations that exist, and their branches: `id::branch`."""
        for id in dict.fromkeys(ids):
            for theirs, name in list(self._kept):
                if theirs == owner and (name == id or name.startswith(f"{id}::")):
                    entry = self.find(name, owner)
                    if entry is not None:
                        yield entry

    def sweep(self, now: float) -> None:
        """Cancel what nobody has read for too long, forget what is finished and old."""
        for key, entry in list(self._kept.items()):
            stream = entry.ticket.stream
            if not self._inference.holds(entry.ticket):
                del self._kept[key]
            elif stream.ended:
                if time.time() - stream.completed > FINISHED_KEPT and not stream.readers:
                    self._drop(key)
            elif stream.readers:
                entry.alone_since = None
            elif entry.alone_since is None:
                entry.alone_since = now
            elif now - entry.alone_since > self._detached:
                log.info("conversation %s: nobody has read it for %g s, cancelled", entry.id, self._detached)
                self.stop(entry.id, key[0])

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self, key: Key) -> None:
        entry = self._kept.pop(key)
        entry.ticket.kept = False
        self._inference.left(entry.ticket)

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SWEEP_INTERVAL, self._tick)

    def _tick(self) -> None:
        self.sweep(time.monotonic())
        self._timer = None
        if self._kept:
            self._arm()

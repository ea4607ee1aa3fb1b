"""Conversations behind `previous_response_id`, in memory, within a number of bytes."""

from __future__ import annotations

from collections import OrderedDict

import msgspec
from msgspec import Struct

from router.http.errors import invalid
from router.http.responses_request import History

CAPACITY = 64 << 20


class _Stored(Struct):
    owner: str
    messages: History
    size: int


class ResponseStore:
    """Keeps what was said up to each response. The ones used least recently go first; a restart forgets all."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._stored: OrderedDict[str, _Stored] = OrderedDict()
        self._size = 0
        self._encoder = msgspec.msgpack.Encoder()

    def __len__(self) -> int:
        return len(self._stored)

    def put(self, id: str, owner: str, messages: History) -> None:
        size = len(self._encoder.encode(messages))
        if size > self._capacity:
            return
        self._stored[id] = _Stored(owner, messages, size)
        self._size += size
        while self._size > self._capacity:
            _, dropped = self._stored.popitem(last=False)
            self._size -= dropped.size

    def history(self, id: str | None, owner: str) -> History:
        """What went before a request that goes on from a response. Raises a 400 `ApiError` for an unknown one."""
        if not id:
            return ()
        stored = self._stored.get(id)
        if stored is None or stored.owner != owner:
            raise invalid(f"Previous response with id '{id}' not found.", "previous_response_id")
        self._stored.move_to_end(id)
        return stored.messages

"""Tool calls as they are sent: name and id once, then fragments of arguments."""

from __future__ import annotations

import secrets
import string

from protocol.generate import ToolCallDelta
from worker.chat.stream import Stream

_ALPHABET = string.ascii_letters + string.digits


def new_call_id(length: int) -> str:
    """A random id of letters and digits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


class OpenCall:
    """One call being read: nothing is sent before its name is certain. Ends an attempt of the stream."""

    def __init__(self, stream: Stream, name: str, call_id: str = "") -> None:
        self._stream = stream
        self._index = stream.next_call
        stream.next_call += 1
        stream.commit()
        stream.emit(ToolCallDelta(index=self._index, id=call_id or new_call_id(stream.id_length), name=name))

    def arguments(self, fragment: str) -> None:
        if fragment:
            self._stream.emit(ToolCallDelta(index=self._index, arguments=fragment))

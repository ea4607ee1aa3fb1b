"""A plain-text dialect: what an encoder is to the transport, and nothing of HTTP."""

from __future__ import annotations

from protocol.codec import Answer
from protocol.errors import WireError
from protocol.generate import Delta


class TextEncoder:
    """Streams `<` deltas `>`; an error is `!kind!`, a comment `#text#`."""

    media_type = "text/plain"
    streams = True
    comments = True

    def begin(self) -> bytes:
        return b"<"

    def delta(self, delta: Delta) -> bytes:
        return delta.text.encode()

    def end(self, answer: Answer) -> bytes:
        return b">"

    def error(self, error: WireError) -> bytes:
        return b"!%s!" % error.kind.encode()

    def comment(self, text: str) -> bytes:
        return b"#%s#" % text.encode()


class BodyEncoder(TextEncoder):
    """The same, whole at the end."""

    streams = False
    comments = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def begin(self) -> bytes:
        self._parts.clear()
        return b""

    def delta(self, delta: Delta) -> bytes:
        self._parts.append(delta.text.encode())
        return b""

    def end(self, answer: Answer) -> bytes:
        return b"<" + b"".join(self._parts) + b">"

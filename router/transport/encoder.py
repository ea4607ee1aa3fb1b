"""How a request's output becomes bytes: the seam between streams and the dialects of the HTTP layer."""

from __future__ import annotations

from typing import Protocol

from protocol.codec import Answer
from protocol.errors import WireError
from protocol.generate import Delta


class Encoder(Protocol):
    """Turns one request's output into the bytes of its answer, each call into whole frames (events, lines) or nothing.

    `streams` False means that one body comes out of `end`. `comments` says whether the format has a way to show signs
    of life that clients skip.
    """

    @property
    def media_type(self) -> str: ...

    @property
    def streams(self) -> bool: ...

    @property
    def comments(self) -> bool: ...

    def begin(self) -> bytes:
        """What precedes the output.

        Called before the first `delta` or `end`, and again when a request of which no client has seen a byte starts
        anew on another worker: it forgets what it has gathered.
        """
        ...

    def delta(self, delta: Delta) -> bytes: ...

    def end(self, answer: Answer) -> bytes: ...

    def error(self, error: WireError) -> bytes:
        """An error in the dialect's shape; inside a running stream, or in place of one that never began."""
        ...

    def comment(self, text: str) -> bytes: ...

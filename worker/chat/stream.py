"""The text a parser reads: primitives that wait for as much of it as a decision needs, and no more.

A family's parser is a generator: it reads from a `Stream` with `yield from` and emits pieces; each bare `yield` inside
the primitives means "more text, please". So a parser reads like one for a complete text and still streams.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import TypeVar

from protocol.generate import ToolCallDelta
from worker.chat.pieces import Content, Piece, Reasoning

T = TypeVar("T")
Steps = Generator[None, None, T]
Sink = Callable[[str], None]


class Markers:
    """Texts to look for. Made once for each set of them: a stream looks at every token."""

    def __init__(self, markers: tuple[str, ...]) -> None:
        by_length = sorted(markers, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, by_length)) if markers else "(?!)")
        self._beginnings = {marker[:size] for marker in markers for size in range(1, len(marker))}
        self._longest = max(map(len, self._beginnings), default=0)

    def find(self, text: str) -> tuple[int, str] | None:
        """Position and name of the marker that comes first; of several at one place, the longest."""
        found = self._pattern.search(text)
        return None if found is None else (found.start(), found.group())

    def held_back(self, text: str) -> int:
        """How many characters at the end of `text` could be the beginning of a marker."""
        for size in range(min(len(text), self._longest), 0, -1):
            if text[-size:] in self._beginnings:
                return size
        return 0


@lru_cache(maxsize=512)
def _markers(texts: tuple[str, ...]) -> Markers:
    return Markers(texts)


class Stream:
    """Text that has come and was not read yet, and the pieces read from it.

    `id_length` is the number of characters of the ids that calls get.
    """

    def __init__(self, id_length: int = 32) -> None:
        self.id_length = id_length
        self.text = ""
        self.ended = False
        self.pieces: list[Piece] = []
        self.next_call = 0
        self._taken: str | None = None

    def emit(self, piece: Piece) -> None:
        """Add a piece, joined to the one before where both are plain text of one kind."""
        if not isinstance(piece, ToolCallDelta) and not piece.text:
            return
        last = self.pieces[-1] if self.pieces else None
        if isinstance(piece, Content) and isinstance(last, Content):
            self.pieces[-1] = Content(last.text + piece.text)
        elif isinstance(piece, Reasoning) and isinstance(last, Reasoning):
            self.pieces[-1] = Reasoning(last.text + piece.text)
        elif isinstance(piece, ToolCallDelta) and isinstance(last, ToolCallDelta) and last.index == piece.index:
            self.pieces[-1] = ToolCallDelta(last.index, last.id, last.name, last.arguments + piece.arguments)
        else:
            self.pieces.append(piece)

    def content(self, text: str) -> None:
        self.emit(Content(text))

    def reasoning(self, text: str) -> None:
        self.emit(Reasoning(text))

    def take(self, size: int) -> str:
        """Remove and return the next characters."""
        taken, self.text = self.text[:size], self.text[size:]
        if self._taken is not None:
            self._taken += taken
        return taken

    def attempt(self) -> None:
        """Remember what is taken from here on, so that `give_up` can put it back."""
        self._taken = ""

    def commit(self) -> None:
        """What was taken since `attempt` is what it seemed to be."""
        self._taken = None

    def give_up(self) -> None:
        """Put back what was taken since `attempt`."""
        self.text = (self._taken or "") + self.text
        self._taken = None

    def until(self, markers: Sequence[str], sink: Sink) -> Steps[str]:
        """Pass text to `sink` up to the earliest marker, which is removed and returned; "" at the end of the text."""
        wanted = _markers(tuple(markers))
        while True:
            found = wanted.find(self.text)
            keep = 0 if self.ended else wanted.held_back(self.text)
            if found is not None and found[0] + keep < len(self.text):
                position, marker = found
                sink(self.take(position))
                self.take(len(marker))
                return marker
            sink(self.take(len(self.text) - keep))
            if self.ended:
                return ""
            yield

    def head(self, markers: Sequence[str], limit: int) -> Steps[tuple[str, str]]:
        """Read a short text and the marker behind it; the marker is "" if none comes within `limit` characters."""
        wanted = _markers(tuple(markers))
        while True:
            found = wanted.find(self.text)
            if found is not None and found[0] <= limit:
                position, marker = found
                text = self.take(position)
                self.take(len(marker))
                return text, marker
            if self.ended or found is not None or len(self.text) > limit + max(map(len, markers)):
                return self.take(min(len(self.text), limit)), ""
            yield

    def starts(self, *markers: str) -> Steps[str]:
        """Which marker the text begins with (the longest), without reading it; waits while that is open."""
        while True:
            matching = [marker for marker in markers if self.text.startswith(marker)]
            open_still = any(len(marker) > len(self.text) and marker.startswith(self.text) for marker in markers)
            if self.ended or not open_still:
                return max(matching, key=len, default="")
            yield

    def accept(self, *markers: str) -> Steps[str]:
        """Read one of the markers if the text begins with it; returns it, or ""."""
        marker = yield from self.starts(*markers)
        self.take(len(marker))
        return marker

    def spaces(self, kinds: str | None = None) -> Steps[str]:
        """Read white space, or the characters `kinds`; returns it."""
        taken = ""
        while True:
            stripped = self.text.lstrip(kinds)
            taken += self.take(len(self.text) - len(stripped))
            if self.text or self.ended:
                return taken
            yield

    def word(self, stops: str) -> Steps[str]:
        """Read up to any of the characters `stops` or the end of the text, without the stop."""
        taken = ""
        while True:
            size = next((i for i, character in enumerate(self.text) if character in stops), len(self.text))
            taken += self.take(size)
            if self.text or self.ended:
                return taken
            yield

    def peek(self) -> Steps[str]:
        """The next character, without reading it; "" at the end of the text."""
        while not self.text and not self.ended:
            yield
        return self.text[:1]


class StreamParser:
    """Drives one family's generator as a `Parser`."""

    def __init__(self, run: Callable[[Stream], Steps[None]], id_length: int = 32) -> None:
        self._stream = Stream(id_length)
        self._steps = run(self._stream)
        self._done = False

    def feed(self, text: str) -> list[Piece]:
        self._stream.text += text
        return self._advance()

    def finish(self) -> list[Piece]:
        self._stream.ended = True
        return self._advance()

    def _advance(self) -> list[Piece]:
        if not self._done:
            try:
                next(self._steps)
            except StopIteration:
                self._done = True
        if self._done:
            self._stream.content(self._stream.take(len(self._stream.text)))
        pieces, self._stream.pieces = self._stream.pieces, []
        return pieces

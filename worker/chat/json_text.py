"""JSON as it streams: where a value ends, and its text in valid form."""

from __future__ import annotations

import json
import string

from worker.chat.stream import Sink, Steps, Stream

_SCALAR_END = frozenset(",]}" + string.whitespace)
_ESCAPED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


class JsonScanner:
    """Follows one JSON value through its text, piece by piece.

    Line breaks and other control characters inside strings, which models write though JSON forbids it, are escaped on
    the way.
    """

    def __init__(self) -> None:
        self.done = False
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._in_scalar = False

    def feed(self, text: str) -> tuple[str, int]:
        """The text of the value in `text`, and how many characters of `text` it took."""
        out: list[str] = []
        for position, character in enumerate(text):
            if self._in_scalar and character in _SCALAR_END:
                self._in_scalar = False
                if self._depth == 0:
                    self.done = True
                    return "".join(out), position
            out.append(self._step(character))
            if self.done:
                return "".join(out), position + 1
        return "".join(out), len(text)

    def _step(self, character: str) -> str:
        if self._in_string:
            return self._string_step(character)
        if character == '"':
            self._in_string = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            self.done = self._depth <= 0
        elif not character.isspace() and character not in ",:":
            self._in_scalar = True
        return character

    def _string_step(self, character: str) -> str:
        if self._escaped:
            self._escaped = False
        elif character == "\\":
            self._escaped = True
        elif character == '"':
            self._in_string = False
            self.done = self._depth == 0
        elif character < " ":
            return _ESCAPED.get(character, f"\\u{ord(character):04x}")
        return character


def read_json(stream: Stream, sink: Sink) -> Steps[bool]:
    """Pass one JSON value to `sink` as it comes; True if it was complete."""
    yield from stream.spaces()
    scanner = JsonScanner()
    while True:
        text, size = scanner.feed(stream.text)
        stream.take(size)
        sink(text)
        if scanner.done:
            return True
        if stream.ended:
            return False
        yield


def read_json_string(stream: Stream) -> Steps[str | None]:
    """One JSON string, decoded; None if there is none."""
    if (yield from stream.peek()) != '"':
        return None
    parts: list[str] = []
    if not (yield from read_json(stream, parts.append)):
        return None
    value = decode("".join(parts))
    return value if isinstance(value, str) else None


def decode(text: str) -> object:
    """The value of a JSON text, or NOT_JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return NOT_JSON


class _NotJson:
    pass


NOT_JSON = _NotJson()


def quoted(text: str) -> str:
    """A text as the inside of a JSON string, without the quotes around it."""
    return json.dumps(text, ensure_ascii=False)[1:-1]

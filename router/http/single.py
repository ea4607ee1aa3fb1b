"""The encoder of work that has no deltas: one answer, one JSON body."""

from __future__ import annotations

from collections.abc import Callable

from protocol.codec import Answer
from protocol.errors import WireError
from protocol.generate import Delta
from router.http import errors, sse
from router.http.errors import Dialect


class SingleBody:
    """`shape` turns the answer into a JSON value; None says that it is no answer to this work."""

    media_type = "application/json; charset=utf-8"
    streams = False
    comments = False

    def __init__(self, shape: Callable[[Answer], object | None], dialect: Dialect = Dialect.OPENAI) -> None:
        self._shape = shape
        self._dialect = dialect

    def begin(self) -> bytes:
        return b""

    def delta(self, delta: Delta) -> bytes:
        raise TypeError("this work has no deltas")

    def end(self, answer: Answer) -> bytes:
        value = self._shape(answer)
        if value is None:
            raise TypeError(f"unexpected answer {type(answer).__name__}")
        return sse.to_json(value)

    def error(self, error: WireError) -> bytes:
        return errors.body(self._dialect, errors.from_wire(error))

    def comment(self, text: str) -> bytes:
        return b""

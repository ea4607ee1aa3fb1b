"""Calls that a model may make: its output is free until it opens one, and from there on bound to be a valid call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from worker.constraint import Mask, Matcher


@dataclass(frozen=True, slots=True)
class Openings:
    """Texts that open a call. If they are no marks of their own, they do so `at_start` of the answer only."""

    texts: tuple[bytes, ...]
    at_start: bool = False

    def find(self, text: bytes) -> int:
        """Where the first of them begins in a text, -1 if there is none."""
        if self.at_start:
            start = len(text) - len(text.lstrip())
            return start if text.startswith(self.texts, start) else -1
        found = [position for opening in self.texts if (position := text.find(opening)) >= 0]
        return min(found, default=-1)

    def rest(self, text: bytes) -> bytes:
        """The end of a text that has none of them which may still become one."""
        if self.at_start:
            begun = text.lstrip()
            return text if any(opening.startswith(begun) for opening in self.texts) else b""
        longest = max(map(len, self.texts)) - 1
        return text[-longest:] if longest else b""


@dataclass(frozen=True, slots=True)
class Thoughts:
    """How reasoning is marked in an answer: it may begin with `start`, or the prompt has opened it already."""

    start: bytes
    ends: tuple[bytes, ...]
    is_open: bool


class CallGate:
    """A mask of an output in which calls are optional. `make` gives a matcher of calls, from their opening on.

    Nothing in the reasoning opens a call. An opening that no call begins with, as the rest of its token shows, is text.
    """

    def __init__(
        self, make: Callable[[], Matcher], pieces: Sequence[bytes], openings: Openings, thoughts: Thoughts | None
    ) -> None:
        self._make = make
        self._pieces = pieces
        self._openings = openings
        self._thoughts = thoughts
        self._reasoning = thoughts is not None and thoughts.is_open
        self._may_reason = thoughts is not None and not thoughts.is_open
        self._may_call = True
        self._text = b""
        self._calls: Matcher | None = None

    def mask(self) -> Mask | None:
        return None if self._calls is None else self._calls.mask()

    def accept(self, token: int) -> None:
        """Go on behind a token. Raises ConstraintError if a mask did not allow it."""
        if self._calls is not None:
            self._calls.accept(token)
        elif self._may_call:
            self._text += self._pieces[token]
            self._read()

    def is_accepting(self) -> bool:
        return self._calls is None or self._calls.is_accepting()

    def is_stopped(self) -> bool:
        return self._calls is not None and self._calls.is_stopped()

    def _read(self) -> None:
        if self._may_reason and self._is_undecided():
            return
        if self._reasoning and not self._thinks_no_more():
            return
        position = self._openings.find(self._text)
        if position >= 0:
            calls = self._make()
            if calls.accept_text(self._text[position:]):
                self._calls = calls
                return
            self._text = self._text[position + 1 :]
        self._text = self._openings.rest(self._text)
        self._may_call = bool(self._text) or not self._openings.at_start

    def _is_undecided(self) -> bool:
        """Whether what has come may still become the start of reasoning. Once it is one, reasoning has begun."""
        assert self._thoughts is not None
        begun = self._text.lstrip()
        if begun.startswith(self._thoughts.start):
            self._text = begun[len(self._thoughts.start) :]
            self._reasoning = True
        elif self._thoughts.start.startswith(begun):
            return True
        self._may_reason = False
        return False

    def _thinks_no_more(self) -> bool:
        """Whether reasoning has ended; what comes before its end is forgotten."""
        assert self._thoughts is not None
        found = [(position, len(end)) for end in self._thoughts.ends if (position := self._text.find(end)) >= 0]
        if not found:
            self._text = self._text[1 - max(map(len, self._thoughts.ends)) :]
            return False
        position, length = min(found)
        self._text = self._text[position + length :]
        self._reasoning = False
        return True

"""The parts that a model's output is made of, and the interface of what takes it apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from protocol.generate import ToolCallDelta


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text the model wrote to itself."""

    text: str


Piece = Content | Reasoning | ToolCallDelta


class Parser(Protocol):
    """Takes the text of one answer apart as it comes.

    The pieces of any cut of a text into `feed` calls, followed by `finish`, join to the same content, reasoning and
    calls. Text that may still turn out to be markup is held back until it is decided. A parser never raises for what
    a model wrote: what is no valid call is content.
    """

    def feed(self, text: str) -> list[Piece]: ...

    def finish(self) -> list[Piece]:
        """The end of the output: whatever was held back."""
        ...

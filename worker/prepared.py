"""A generation that is ready to be decoded: everything that preparation has found out about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from protocol.embed import Embed, Rerank
from protocol.generate import Generate
from worker.chat.pieces import Parser
from worker.stop_strings import StopAutomaton


class OutputMask(Protocol):
    """Allows only those tokens that keep an output within its constraint; see `worker.constraint`. One per choice."""

    def mask(self) -> npt.NDArray[np.uint32] | None: ...

    def accept(self, token: int) -> None: ...

    def is_stopped(self) -> bool: ...


@dataclass(slots=True)
class PreparedPrompt:
    """Tokens of a prompt and how the output behind it is to be read.

    `parser()` takes the text of one choice apart, None for plain text. `preserved` are control tokens whose text is a
    part of the output. `reasoning_open` says that the output begins inside of reasoning; any text of `reasoning_ends`
    ends it, and the tokens `reasoning_end` force its end. `reasoning_start_token` may open it, -1 if none does.
    """

    tokens: list[int]
    text: str = ""
    parser: Callable[[], Parser] | None = None
    stops: tuple[str, ...] = ()
    preserved: frozenset[int] = frozenset()
    reasoning_open: bool = False
    reasoning_start_token: int = -1
    reasoning_ends: tuple[bytes, ...] = ()
    reasoning_end: tuple[int, ...] = ()


@dataclass(slots=True)
class PreparedGeneration:
    """`seed` is the first choice's; the others count up from it.

    `resumed` are the tokens that each choice had generated in another process.
    """

    message: Generate
    prompt: PreparedPrompt
    seed: int
    stops: StopAutomaton
    biases: Sequence[tuple[int, float]] = ()
    grammar: str = ""
    mask: Callable[[], OutputMask] | None = None
    resumed: tuple[tuple[int, ...], ...] = field(default=())

    @property
    def request(self) -> int:
        return self.message.request


@dataclass(slots=True)
class PreparedInputs:
    """Inputs to embed, or query and document pairs to score, as tokens."""

    message: Embed | Rerank
    inputs: list[list[int]]

    @property
    def request(self) -> int:
        return self.message.request

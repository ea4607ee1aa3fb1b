"""A generation that is ready to be decoded: everything that preparation has found out about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from protocol.embed import Embed, Rerank
from protocol.generate import Generate
from protocol.text import CountTokens
from worker.chat.syntax import OutputSyntax
from worker.media_prompt import MediaPrompt
from worker.reasoning_budget import ReasoningBudget
from worker.stop_strings import StopAutomaton


class OutputMask(Protocol):
    """Allows only those tokens that keep an output within its constraint; see `worker.constraint`. One per choice."""

    def mask(self) -> npt.NDArray[np.uint32] | None: ...

    def accept(self, token: int) -> None: ...

    def is_stopped(self) -> bool: ...


@dataclass(slots=True)
class PreparedPrompt:
    """Tokens of a prompt and how the output behind it is to be read.

    `syntax` says how to take a chat's answer apart, None for plain text. `preserved` are control tokens whose text is
    a part of the output. `budget` makes the counter of a choice's reasoning, None for models that do not reason.
    `media` are the files of the prompt; before they are encoded, `tokens` are those of its texts alone.
    """

    tokens: list[int]
    text: str = ""
    syntax: OutputSyntax | None = None
    stops: tuple[str, ...] = ()
    preserved: frozenset[int] = frozenset()
    budget: Callable[[], ReasoningBudget] | None = None
    media: MediaPrompt | None = None

    @property
    def waits_for_media(self) -> bool:
        return self.media is not None and not self.media.is_encoded


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


@dataclass(slots=True)
class PreparedCount:
    """A prompt whose tokens can be counted once its files are encoded."""

    message: CountTokens
    prompt: PreparedPrompt

    @property
    def request(self) -> int:
        return self.message.request

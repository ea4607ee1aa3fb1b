"""The batch scheduler: which sequences take part in the next step, and with how many tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

MAX_STARTED = 2
"""Prompts that have begun and are not done: one in progress and one suspended half-way."""


class Prefill(Protocol):
    """A prompt that waits to be decoded."""

    @property
    def remaining(self) -> int:
        """Tokens left to decode."""

    @property
    def started(self) -> bool:
        """Whether some of it has been decoded for this request."""

    @property
    def waiting_since(self) -> float:
        """When it came, in seconds of the loop's clock."""

    @property
    def chunk_limit(self) -> int:
        """Tokens up to the next point where a step must end, because others wait for it; at most `remaining`."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a step's prompt tokens: `n_tokens` of the prompt number `index`."""

    index: int
    n_tokens: int


def plan_prefill(prompts: Sequence[Prefill], room: int, ms_per_token: float, now: float) -> list[Share]:
    """Divide `room` prompt tokens of the next step among the prompts that may be decoded.

    The one that is soonest at its next border (its end, or what others wait for) goes first, less the time that it has
    waited, so that a long one is not passed by for ever. Prompts are finished one after the other; at most one is
    suspended half-way for a shorter one.
    """
    shares: list[Share] = []
    started = sum(prompt.started for prompt in prompts)
    for index in _by_urgency(prompts, ms_per_token, now):
        prompt = prompts[index]
        if room <= 0:
            break
        if not prompt.started:
            if started >= MAX_STARTED:
                continue
            started += 1
        count = min(prompt.chunk_limit, room)
        shares.append(Share(index, count))
        room -= count
        if count == prompt.remaining:
            started -= 1
        else:
            break
    return shares


def _by_urgency(prompts: Sequence[Prefill], ms_per_token: float, now: float) -> Iterable[int]:
    def urgency(index: int) -> tuple[float, int]:
        prompt = prompts[index]
        waited_ms = 1000 * (now - prompt.waiting_since)
        return prompt.chunk_limit * ms_per_token - waited_ms, index

    return sorted(range(len(prompts)), key=urgency)

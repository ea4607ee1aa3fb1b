"""One choice of one request while it is decoded."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from worker.media_prompt import MediaPrompt, Positions
from worker.media_tokens import is_media, next_media
from worker.prepared import OutputMask, PreparedGeneration
from worker.reasoning_budget import ReasoningBudget
from worker.shelf import Namespace
from worker.text_output import TextOutput

if TYPE_CHECKING:
    from worker.llama_sampler import Sampler  # the bookkeeping of sequences needs no engine


class Phase(enum.Enum):
    """Where a sequence is. `WAITING` has no slot yet; `PARKED` has lost its cells to older sequences."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    PARKED = "parked"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Sequence:
    """`tokens` are the prompt and what was generated behind it; the first `n_past` of them are in the KV cache.

    Times are seconds of the loop's clock.
    """

    prepared: PreparedGeneration
    index: int
    sampler: Sampler
    output: TextOutput
    mask: OutputMask | None
    budget: ReasoningBudget | None
    tokens: list[int]
    n_prompt: int
    limit: int
    """Most tokens to generate."""
    namespace: Namespace
    arrived: float
    phase: Phase = Phase.WAITING
    slot: int = -1
    id: int = -1
    """Its sequence in the engine's cache, -1 while it holds none."""
    n_past: int = 0
    n_cached: int = 0
    """Prompt tokens that came from the cache when it first began."""
    n_skipped: int = 0
    """Tokens found in the cache when it last began."""
    began: float = 0.0
    first_token: float = 0.0
    decoding_ms: float = 0.0
    """Decode time spent before it was parked in another process."""
    output_tokens: list[int] = field(default_factory=list)
    """What was generated, also what a shifted context has dropped since."""
    borders: set[int] = field(default_factory=set)
    """Positions where a step must end: others wait for the tokens up to there."""
    n_reasoning: int = 0
    n_draft: int = 0
    n_draft_accepted: int = 0
    shifted: bool = False
    """Whether tokens were dropped from its context."""
    truncated: bool = False
    """Whether the end of the context has ended it, or its context was shifted."""
    waits_for: Sequence | None = None
    """A running sequence whose prompt begins as this one does, ..."""
    waits_until: int = 0
    """... and how many of its tokens must have been decoded."""
    positions: Positions | None = None
    """Where positions in the engine's cache are not the indexes of the tokens."""

    @property
    def request(self) -> int:
        return self.prepared.request

    @property
    def media(self) -> MediaPrompt | None:
        return self.prepared.prompt.media

    @property
    def at_media(self) -> bool:
        """Whether its next token stands for an embedding."""
        return self.media is not None and is_media(self.tokens[self.n_past])

    def position(self, index: int) -> int:
        """The position in the engine's cache of the token at `index`."""
        return index if self.positions is None else self.positions.at(self.tokens, index)

    @property
    def n_generated(self) -> int:
        return len(self.output_tokens)

    # What the batch scheduler asks

    @property
    def remaining(self) -> int:
        return len(self.tokens) - self.n_past

    @property
    def started(self) -> bool:
        return self.n_past > self.n_skipped

    @property
    def waiting_since(self) -> float:
        return self.arrived

    @property
    def blocked(self) -> bool:
        """Whether it waits for tokens that another sequence is about to decode."""
        other = self.waits_for
        return other is not None and other.phase is Phase.PREFILL and other.n_past < self.waits_until

    @property
    def chunk_limit(self) -> int:
        ahead = [point - self.n_past for point in self.borders if point > self.n_past]
        if self.media is not None:
            ahead.append(next_media(self.tokens, self.n_past) - self.n_past)
        return min([*ahead, self.remaining])

"""Filling the batch of a step: single tokens, drafts behind them, and chunks of prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from worker.batch import plan_prefill
from worker.engine import Engine
from worker.llama_batch import EmbeddingBatch
from worker.media_step import MediaSteps
from worker.residency import Residency
from worker.sequence import Phase, Sequence
from worker.shelf import Namespace
from worker.speculation import Drafter
from worker.step_cost import StepCost


@dataclass(slots=True)
class Part:
    """A sequence's part of a step: `n_tokens` from `n_past` on, the last of them a `draft`.

    `row` is its first output, -1 for none; the last token before the draft has one, and each token of the draft.
    """

    sequence: Sequence
    n_tokens: int
    row: int
    draft: list[int]
    embeddings: EmbeddingBatch | None = None
    """What the whole step computes in place of tokens."""


class StepFiller:
    """Fills the engine's batch from what is resident."""

    def __init__(
        self,
        engine: Engine,
        residency: Residency,
        cost: StepCost,
        drafter: Drafter | None,
        budget_ms: float,
        clock: Callable[[], float],
    ) -> None:
        self._batch = engine.context.batch
        self._context = engine.context
        self._adapters = engine.adapters
        self._residency = residency
        self._cache = residency.cache
        self._cost = cost
        self._drafter = drafter
        self._budget_ms = budget_ms
        self._clock = clock
        self._namespace: Namespace = ()
        self._media_steps = MediaSteps(
            residency, engine.context.batch.capacity, lambda n_decoding: cost.chunk(n_decoding, budget_ms)
        )

    def fill(self) -> list[Part]:
        """One token of every decoding sequence, then prompt tokens within the budget; empty if there are none."""
        decoding, prompts = self._of_one_namespace(self._residency.decoding(), self._residency.prompts())
        while not self._cache.make_room(len(decoding) + bool(prompts)):
            self._residency.park_youngest()
            decoding = [sequence for sequence in decoding if sequence.phase is Phase.DECODE]
            prompts = [sequence for sequence in prompts if sequence.phase is Phase.PREFILL]
        if any(sequence.at_media for sequence in prompts):
            if parts := self._media_part(decoding, prompts):
                return parts
            decoding = [sequence for sequence in decoding if sequence.phase is Phase.DECODE]
            prompts = [sequence for sequence in prompts if sequence.phase is Phase.PREFILL and not sequence.at_media]
        self._batch.clear()
        parts = [self._single(sequence) for sequence in decoding]
        if prompts:
            parts += self._chunks(prompts, len(decoding))
        elif self._drafter is not None:
            parts = self._with_drafts(parts)
        return parts

    def _of_one_namespace(
        self, decoding: list[Sequence], prompts: list[Sequence]
    ) -> tuple[list[Sequence], list[Sequence]]:
        """A step computes with one set of adapters; where several are wanted, they take turns."""
        wanted = sorted({sequence.namespace for sequence in (*decoding, *prompts)})
        if wanted:
            self._namespace = next((n for n in wanted if n > self._namespace), wanted[0])
            self._adapters.apply(self._context.handle, self._namespace)
        if len(wanted) < 2:
            return decoding, prompts
        return (
            [sequence for sequence in decoding if sequence.namespace == self._namespace],
            [sequence for sequence in prompts if sequence.namespace == self._namespace],
        )

    def _media_part(self, decoding: list[Sequence], prompts: list[Sequence]) -> list[Part]:
        """A step of embeddings, if it is their turn."""
        waiting = [sequence for sequence in prompts if sequence.at_media]
        others = bool(decoding) or len(waiting) < len(prompts)
        found = self._media_steps.next(waiting, len(decoding), others)
        if found is None:
            return []
        sequence, batch = found
        return [Part(sequence, batch.n_tokens, batch.n_outputs - 1, [], batch)]

    def _single(self, sequence: Sequence) -> Part:
        row = self._batch.add(sequence.tokens[sequence.n_past], sequence.position(sequence.n_past), sequence.id)
        return Part(sequence, 1, row, [])

    def _chunks(self, prompts: list[Sequence], n_decoding: int) -> list[Part]:
        chunk = min(self._batch.room, self._cost.chunk(n_decoding, self._budget_ms))
        while chunk > 1 and not self._cache.make_room(n_decoding + chunk):
            chunk = min(chunk - 1, self._cache.cells.free - n_decoding)
        parts = []
        for share in plan_prefill(prompts, chunk, self._cost.prompt_ms, self._clock()):
            sequence = prompts[share.index]
            end = sequence.n_past + share.n_tokens
            tokens = sequence.tokens[sequence.n_past : end]
            begin = sequence.position(sequence.n_past)
            row = self._batch.extend(tokens, begin, sequence.id, int(end == len(sequence.tokens)))
            parts.append(Part(sequence, share.n_tokens, row, []))
        return parts

    def _with_drafts(self, parts: list[Part]) -> list[Part]:
        """The same parts with drafts behind their tokens, where drafts are expected to pay."""
        assert self._drafter is not None
        drafts = self._drafter.propose([part.sequence for part in parts], self._cost)
        room = min(self._batch.room, self._cache.cells.free - len(parts))
        if not any(drafts) or sum(map(len, drafts)) > room:
            return parts
        self._batch.clear()
        drafted = []
        for part, draft in zip(parts, drafts, strict=True):
            sequence = part.sequence
            tokens = [sequence.tokens[sequence.n_past], *draft]
            row = self._batch.extend(tokens, sequence.position(sequence.n_past), sequence.id, len(tokens))
            drafted.append(Part(sequence, len(tokens), row, draft))
        return drafted

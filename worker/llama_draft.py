"""A small model that drafts for a large one: it runs beside it and guesses greedily."""

from __future__ import annotations

import numpy as np

from protocol.load import DraftSpec, LoadParameters
from worker.llama_context import Context, ContextSizes, EngineFailure, Floats, Outcome
from worker.llama_log import EngineLog
from worker.llama_model import LoadError, Model
from worker.llama_vocabulary import Vocabulary
from worker.sequence import Sequence

_COMPARED_TOKENS = 5
"""The first tokens of a vocabulary are special ones, which may differ though the texts agree."""


class DraftModel:
    """A proposer with weights and a cache of its own: one sequence there for each that it drafts for.

    Raises `LoadError` when the file cannot be loaded or speaks another vocabulary. `close` frees it.
    """

    def __init__(
        self, spec: DraftSpec, target: Vocabulary, sizes: ContextSizes, flash_attn: str, log: EngineLog
    ) -> None:
        parameters = LoadParameters(model_path=spec.model_path, flash_attn=flash_attn)
        self._p_min = spec.p_min
        self._model = Model(parameters, log)
        try:
            _check_same_vocabulary(self._model, target)
            self._context = Context(self._model, parameters, sizes, log)
        except BaseException:
            self._model.close()
            raise
        self._free = list(range(self._context.n_seq_max))
        self._seats: dict[Sequence, tuple[int, list[int]]] = {}
        """Its sequence in the draft's cache, and the tokens that are there."""

    def close(self) -> None:
        self._context.close()
        self._model.close()

    def set_threads(self, threads: int, threads_batch: int) -> None:
        self._context.set_threads(threads, threads_batch)

    def propose(self, sequence: Sequence, n_max: int) -> list[int]:
        """Greedy guesses behind a sequence's tokens, up to the first that the draft is not sure of."""
        if sequence not in self._seats:
            if not self._free:
                return []
            self._seats[sequence] = (self._free.pop(), [])
        seat, known = self._seats[sequence]
        tokens = sequence.tokens
        if len(tokens) + n_max >= self._context.n_ctx:
            return []
        same = _common_length(known, tokens)
        # The last token is computed anew in any case, for its logits.
        same = min(same, len(tokens) - 1)
        if same < len(known):
            self._context.truncate(seat, same)
            del known[same:]
        if not self._feed(seat, known, tokens[same:]):
            return []
        return self._guess(seat, known, n_max)

    def forget(self, sequence: Sequence) -> None:
        seat = self._seats.pop(sequence, None)
        if seat is not None:
            self._context.drop(seat[0])
            self._free.append(seat[0])

    def _guess(self, seat: int, known: list[int], n_max: int) -> list[int]:
        draft: list[int] = []
        while len(draft) < n_max:
            logits = self._context.logits()[0]
            token = int(logits.argmax())
            if _probability(logits, token) < self._p_min or self._model.vocabulary.ends_generation(token):
                break
            draft.append(token)
            if len(draft) == n_max or not self._feed(seat, known, [token]):
                break
        return draft

    def _feed(self, seat: int, known: list[int], tokens: list[int]) -> bool:
        """Compute tokens behind those that are known; the last one has logits. False if there is no room."""
        batch = self._context.batch
        while tokens:
            now, tokens = tokens[: batch.capacity], tokens[batch.capacity :]
            batch.clear()
            batch.extend(now, len(known), seat, int(not tokens))
            outcome = self._context.decode()
            if outcome is Outcome.FULL:
                self._context.drop(seat)
                known.clear()
                return False
            if outcome is not Outcome.DONE:
                raise EngineFailure("the draft model's step was aborted")
            known += now
        return True


def _probability(logits: Floats, token: int) -> float:
    """The probability of the likeliest token."""
    return float(1.0 / np.exp(logits - logits[token], dtype=np.float64).sum())


def _common_length(left: list[int], right: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def _check_same_vocabulary(model: Model, target: Vocabulary) -> None:
    own = model.vocabulary
    step = max(1, target.n_tokens // 64)
    sample = range(_COMPARED_TOKENS, min(own.n_tokens, target.n_tokens), step)
    if own.type != target.type or any(own.piece(token) != target.piece(token) for token in sample):
        raise LoadError(f"{model.path}: the draft model has another vocabulary than the model it drafts for")

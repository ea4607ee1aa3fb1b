"""Steps that compute embeddings: they take turns with steps of tokens, for a batch holds one kind or the other."""

from __future__ import annotations

from collections.abc import Callable

from worker.llama_batch import EmbeddingBatch
from worker.residency import Residency
from worker.sequence import Phase, Sequence


class MediaSteps:
    """`chunk(n_decoding)` says how many prompt tokens a step may have beside so many decoding sequences."""

    def __init__(self, residency: Residency, n_batch: int, chunk: Callable[[int], int]) -> None:
        self._residency = residency
        self._n_batch = n_batch
        self._chunk = chunk
        self._took_turn = False

    def next(self, waiting: list[Sequence], n_decoding: int, others: bool) -> tuple[Sequence, EmbeddingBatch] | None:
        """The batch of the step if it is the turn of one of these sequences, whose next tokens are embeddings."""
        self._took_turn = not (others and self._took_turn)
        if not self._took_turn:
            return None
        sequence = min(waiting, key=lambda one: one.arrived)
        media = sequence.media
        assert media is not None
        chunk, start = media.chunk(sequence.tokens, sequence.n_past)
        begin = sequence.n_past - start
        count = len(chunk.tokens) - begin
        if not chunk.whole:
            count = max(1, min(count, self._n_batch, self._chunk(n_decoding)))
        while not self._residency.cache.make_room(count + n_decoding):
            self._residency.park_youngest()
            if sequence.phase is Phase.PARKED:
                return None
        end = begin + count
        batch = EmbeddingBatch(
            chunk.embeddings[begin:end],
            chunk.positions(sequence.position(start), begin, end),
            sequence.id,
            output=start + end == len(sequence.tokens),
            whole=chunk.whole,
        )
        return sequence, batch

"""Choosing the next token of a sequence: forced, masked or sampled, with its log-probabilities."""

from __future__ import annotations

import threading
from typing import cast

import numpy as np
import numpy.typing as npt

from protocol.generate import TokenLogprob
from worker.constraint import ban
from worker.llama_candidates import Candidates
from worker.llama_vocabulary import Vocabulary
from worker.sequence import Sequence

Floats = npt.NDArray[np.float32]


class TokenChoice:
    """May be used by several threads for different sequences: each has its own room for candidates."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._local = threading.local()

    @property
    def _candidates(self) -> Candidates:
        try:
            return cast(Candidates, self._local.candidates)
        except AttributeError:
            self._local.candidates = made = Candidates(self._vocabulary.n_tokens)
            return made

    def choose(self, sequence: Sequence, logits: Floats) -> tuple[int, TokenLogprob | None]:
        """The next token for a row of logits, which is changed.

        Raises `ConstraintError` when the sequence's constraint can no longer be followed.
        """
        sampling = sequence.prepared.message.sampling
        plain = logits.copy() if sampling.n_probs and not sampling.post_sampling_probs else None
        forced = sequence.budget.forced_token() if sequence.budget is not None else None
        if forced is not None:
            token = forced
            sequence.sampler.accept(token)
        else:
            mask = sequence.mask.mask() if sequence.mask is not None else None
            if mask is not None:
                ban(logits, mask)
            token = sequence.sampler.sample(logits, self._candidates)
        if sequence.mask is not None:
            sequence.mask.accept(token)
        if plain is not None:
            return token, self._from_logits(token, plain, sampling.n_probs)
        if sampling.n_probs:
            return token, self._from_draw(token, sequence, sampling.n_probs)
        return token, None

    def _from_logits(self, token: int, logits: Floats, count: int) -> TokenLogprob:
        """Log-probabilities as the model gave them, before anything was done to them."""
        shifted = logits - logits.max()
        logprobs = shifted - np.log(np.exp(shifted, dtype=np.float64).sum())
        count = min(count, logits.size)
        top = np.argpartition(-logprobs, count - 1)[:count]
        top = top[np.argsort(-logprobs[top], kind="stable")]
        return self._logprob(token, float(logprobs[token]), [(int(t), float(logprobs[t])) for t in top])

    def _from_draw(self, token: int, sequence: Sequence, count: int) -> TokenLogprob:
        """Log-probabilities of the distribution that the token was drawn from."""
        left = [(token, 1.0)] if sequence.sampler.greedy else self._candidates.probabilities()
        chosen = next((p for candidate, p in left if candidate == token), 1.0)
        top = [(candidate, float(np.log(max(p, 1e-30)))) for candidate, p in left[:count]]
        return self._logprob(token, float(np.log(max(chosen, 1e-30))), top)

    def _logprob(self, token: int, logprob: float, top: list[tuple[int, float]]) -> TokenLogprob:
        piece = self._vocabulary.piece
        return TokenLogprob(
            token, logprob, piece(token), tuple(TokenLogprob(other, value, piece(other)) for other, value in top)
        )

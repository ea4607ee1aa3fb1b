"""The candidates that samplers work on: each draw begins with all of them, whatever the last one dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llama_cpp
import numpy as np
import pytest

from worker.llama_candidates import Candidates

N_VOCAB = 200
LOGITS = np.linspace(4.0, 0.0, N_VOCAB, dtype=np.float32)


@pytest.mark.parametrize(
    "sampler",
    [
        pytest.param(lambda: llama_cpp.llama_sampler_init_xtc(1.0, 0.001, 1, 7), id="from the front"),
        pytest.param(lambda: llama_cpp.llama_sampler_init_top_k(5), id="from the end"),
    ],
)
def test_what_a_sampler_drops_is_back_at_the_next_draw(sampler: Callable[[], Any]) -> None:
    candidates = Candidates(N_VOCAB)
    dropping = sampler()
    drawing = llama_cpp.llama_sampler_init_dist(7)
    try:
        for _ in range(3):
            candidates.fill(LOGITS)
            candidates.apply(dropping)
            candidates.apply(drawing)
            left = candidates.probabilities()
            assert 0 < len(left) < N_VOCAB
            assert sum(p for _, p in left) == pytest.approx(1.0, abs=1e-4)
            assert candidates.selected in {token for token, _ in left}
            assert candidates.likeliest() == min(token for token, _ in left)
            candidates.fill(LOGITS)
            candidates.apply(drawing)
            assert len(candidates.probabilities()) == N_VOCAB
    finally:
        for part in (dropping, drawing):
            llama_cpp.llama_sampler_free(part)


@pytest.mark.parametrize("n_vocab", [65, 1000, 4096, 49_152])
@pytest.mark.parametrize("most", [1, 7, 40])
def test_the_likely_tokens_are_among_the_candidates(n_vocab: int, most: int) -> None:
    rng = np.random.default_rng(n_vocab + most)
    candidates = Candidates(n_vocab)
    for _ in range(20):
        logits = rng.normal(size=n_vocab).astype(np.float32)
        logits[rng.integers(n_vocab, size=n_vocab // 3)] = -np.inf
        candidates.fill(logits, most)
        left = candidates._left()
        assert set(np.argsort(-logits)[:most]) <= set(left["id"])
        assert (left["logit"] == logits[left["id"]]).all()
        assert len(set(left["id"])) == left.size

"""Embedding and reranking with tiny encoders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from protocol.chat import MixedPrompt, TextPrompt
from protocol.embed import Embed, Embedded, Rerank, Reranked
from protocol.errors import ErrorKind
from protocol.generate import Generate
from tests.factory import embedding_model, language_model, reranking_model
from tests.worker.conftest import Load

pytestmark = pytest.mark.model


def vectors(answer: object) -> list[np.ndarray]:
    assert isinstance(answer, Embedded), answer
    return [np.frombuffer(rows[0], "<f4") for rows in answer.vectors]


def test_inputs_are_embedded_together_as_alone(tmp_path: Path, load: Load) -> None:
    worker = load(embedding_model(tmp_path / "e.gguf"), embeddings=True, ctx_size=0)
    texts = ("the cat", "a dog and a cat", "rain")
    worker.ask(Embed(1, tuple(TextPrompt(text) for text in texts)))
    together = worker.answer(1)
    assert isinstance(together, Embedded)
    for number, text in enumerate(texts):
        worker.ask(Embed(10 + number, (TextPrompt(text),)))
        alone = vectors(worker.answer(10 + number))[0]
        assert np.allclose(vectors(together)[number], alone, atol=1e-3)
        assert np.isclose(np.linalg.norm(alone), 1.0, atol=1e-3)
    assert all(count > 0 for count in together.n_tokens)


def test_dimensions_and_norms(tmp_path: Path, load: Load) -> None:
    worker = load(embedding_model(tmp_path / "e.gguf"), embeddings=True)
    worker.ask(Embed(1, (TextPrompt("the cat"),), normalize=0, dimensions=8))
    (vector,) = vectors(worker.answer(1))
    assert vector.shape == (8,)
    assert np.isclose(np.abs(vector).max(), 32760.0)


def test_one_vector_per_token_without_pooling(tmp_path: Path, load: Load) -> None:
    worker = load(embedding_model(tmp_path / "e.gguf"), embeddings=True, pooling="none")
    worker.ask(Embed(1, (TextPrompt("the cat sat"), TextPrompt("a dog"))))
    answer = worker.answer(1)
    assert isinstance(answer, Embedded)
    assert [len(rows) for rows in answer.vectors] == list(answer.n_tokens)


def test_a_language_model_embeds_too(tmp_path: Path, load: Load) -> None:
    worker = load(language_model(tmp_path / "l.gguf"), embeddings=True, pooling="mean")
    worker.ask(Embed(1, (TextPrompt("the cat"), MixedPrompt(((5, 6, 7),)))))
    assert len(vectors(worker.answer(1))) == 2


def test_documents_are_scored_against_a_query(tmp_path: Path, load: Load) -> None:
    worker = load(reranking_model(tmp_path / "r.gguf"), embeddings=True, pooling="rank")
    worker.ask(Rerank(1, "the cat", ("the cat", "a dog", "the cat")))
    answer = worker.answer(1)
    assert isinstance(answer, Reranked)
    assert answer.scores[0] == pytest.approx(answer.scores[2], abs=1e-4)
    assert answer.scores[0] != pytest.approx(answer.scores[1], abs=1e-6)
    assert answer.n_tokens > 0


def test_what_does_not_fit_or_suit_the_model_is_refused(tmp_path: Path, load: Load) -> None:
    worker = load(embedding_model(tmp_path / "e.gguf"), embeddings=True, ctx_size=64)
    worker.ask(Embed(1, (TextPrompt("cat " * 300),)))
    assert worker.failed(1).kind is ErrorKind.CONTEXT_EXCEEDED
    worker.ask(Generate(2, TextPrompt("the cat")))
    assert worker.failed(2).kind is ErrorKind.NOT_SUPPORTED
    generating = load(language_model(tmp_path / "l.gguf"))
    generating.ask(Embed(3, (TextPrompt("the cat"),)))
    assert generating.failed(3).kind is ErrorKind.NOT_SUPPORTED

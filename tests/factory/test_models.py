"""Every kind of file that the factory makes is loaded, run and told apart by the engine."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import llama_cpp
import numpy as np
import pytest

from tests import factory
from tests.factory.engine import load, opened
from tests.factory.vocabulary import Vocabulary

pytestmark = pytest.mark.model

LANGUAGE_MODELS: dict[str, Callable[..., Path]] = {
    "llama": factory.language_model,
    "gemma3": factory.sliding_window_model,
    "mamba": factory.recurrent_model,
    "jamba": factory.hybrid_model,
}
TEXT = 'Hello the world, ünïcode 🦙\n{"a": [1, 2]}'


@pytest.mark.parametrize("kind", LANGUAGE_MODELS)
def test_a_language_model_babbles_readable_text(tmp_path: Path, kind: str) -> None:
    with opened(LANGUAGE_MODELS[kind](tmp_path / "m.gguf")) as engine:
        text = engine.greedy(TEXT, 12).decode()
    assert len(text.split()) >= 3


def test_memory_kinds_are_what_they_claim(tmp_path: Path) -> None:
    kinds = {}
    for kind, build in LANGUAGE_MODELS.items():
        with opened(build(tmp_path / f"{kind}.gguf")) as engine:
            kinds[kind] = (
                llama_cpp.llama_model_is_recurrent(engine.model),
                llama_cpp.llama_model_is_hybrid(engine.model),
                llama_cpp.llama_model_n_swa(engine.model),
            )
    assert kinds == {
        "llama": (False, False, 0),
        "gemma3": (False, False, 64),
        "mamba": (True, False, 0),
        "jamba": (False, True, 0),
    }


@pytest.mark.parametrize("vocabulary", [factory.sentence_piece_vocabulary(), factory.byte_pair_vocabulary()])
def test_any_text_survives_tokenization(tmp_path: Path, vocabulary: Vocabulary) -> None:
    path = factory.language_model(tmp_path / "m.gguf", vocabulary=vocabulary)
    with opened(path) as engine:
        tokens = engine.tokenize(TEXT)
        assert b"".join(map(engine.piece, tokens)).decode().strip() == TEXT
        marked = engine.tokenize("<|im_start|>user")
        assert engine.piece(marked[-1]) != b""
        assert b"<|im_start|>" in [engine.piece(token, special=True) for token in marked]


def test_weights_follow_from_the_seed(tmp_path: Path) -> None:
    one, same, other = (
        factory.language_model(tmp_path / f"{i}.gguf", seed=seed).read_bytes() for i, seed in enumerate((1, 1, 2))
    )
    assert one == same
    assert one != other


def test_an_end_bias_makes_a_model_end(tmp_path: Path) -> None:
    with opened(factory.language_model(tmp_path / "m.gguf", end_bias=30.0)) as engine:
        engine.decode(engine.tokenize("Hello"))
        assert int(engine.logits().argmax()) == llama_cpp.llama_vocab_eos(engine.vocab)


def test_templates_travel_in_the_file(tmp_path: Path) -> None:
    path = factory.language_model(tmp_path / "m.gguf", chat_template="plain", tool_use_template="with tools")
    with opened(path) as engine:
        assert llama_cpp.llama_model_chat_template(engine.model, None) == b"plain"
        assert llama_cpp.llama_model_chat_template(engine.model, b"tool_use") == b"with tools"


def test_an_embedder_gives_different_vectors_for_different_texts(tmp_path: Path) -> None:
    with opened(factory.embedding_model(tmp_path / "m.gguf"), embeddings=True) as engine:
        one, again, other = (engine.pooled(text, 32) for text in ("the world", "the world", "some other text"))
    assert np.allclose(one, again, atol=1e-6)
    assert not np.allclose(one, other, atol=1e-2)


def test_a_reranker_gives_one_score(tmp_path: Path) -> None:
    with opened(factory.reranking_model(tmp_path / "m.gguf"), embeddings=True) as engine:
        assert llama_cpp.llama_model_n_cls_out(engine.model) == 1
        scores = [float(engine.pooled(text, 1)[0]) for text in ("the world", "some other text")]
    assert scores[0] != scores[1]


def test_an_adapter_changes_the_logits(tmp_path: Path) -> None:
    base = factory.language_model(tmp_path / "m.gguf")
    with opened(base) as engine:
        engine.decode(engine.tokenize("Hello"))
        plain = engine.logits()
    adapter_path = factory.lora_adapter(tmp_path / "lora.gguf")
    with opened(base) as engine:
        adapter = llama_cpp.llama_adapter_lora_init(engine.model, str(adapter_path).encode())
        adapters = (llama_cpp.llama_adapter_lora_p_ctypes * 1)(adapter)
        llama_cpp.llama_set_adapters_lora(engine.context, adapters, 1, (ctypes.c_float * 1)(1.0))
        engine.decode(engine.tokenize("Hello"))
        assert not np.allclose(plain, engine.logits(), atol=1e-2)


def test_a_control_vector_is_a_gguf(tmp_path: Path) -> None:
    assert factory.control_vector(tmp_path / "cv.gguf").read_bytes().startswith(b"GGUF")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    model = factory.language_model(tmp_path / "m.gguf")
    assert load(factory.truncated(tmp_path / "t.gguf", model)) is None
    assert load(factory.truncated(tmp_path / "t2.gguf", model, keep=0.01)) is None
    assert load(factory.corrupt_tensor_table(tmp_path / "c.gguf", model)) is None
    assert load(factory.not_a_model(tmp_path / "n.gguf")) is None
    assert load(factory.unknown_architecture(tmp_path / "u.gguf")) is None

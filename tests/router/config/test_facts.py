from __future__ import annotations

import struct
from pathlib import Path

import pytest

from router.config.errors import BadHeader
from router.config.facts import read_facts, shards
from tests.factory import (
    embedding_model,
    language_model,
    lora_adapter,
    recurrent_model,
    reranking_model,
    sliding_window_model,
    unknown_architecture,
)
from tests.router.config import gguf_bytes as g


def test_a_language_model(tmp_path: Path) -> None:
    facts = read_facts(language_model(tmp_path / "m.gguf", n_ctx_train=2048, n_layer=3, n_head_kv=2))
    assert (facts.architecture, facts.kind, facts.n_ctx_train, facts.n_layer) == ("llama", "model", 2048, 3)
    assert facts.kv_heads == (2, 2, 2)
    assert facts.key_length == facts.value_length == 16
    assert facts.n_vocab > 0
    assert facts.chat_template
    assert facts.tensor_bytes > sum(facts.layer_bytes) > 0
    assert facts.files[0][1].inode == (tmp_path / "m.gguf").stat().st_ino


def test_a_window_that_repeats_every_six_layers(tmp_path: Path) -> None:
    facts = read_facts(sliding_window_model(tmp_path / "m.gguf", window=64, n_layer=6))
    assert facts.window == 64
    assert facts.sliding == (True,) * 5 + (False,)


def test_a_recurrent_model_keeps_state_instead_of_a_cache(tmp_path: Path) -> None:
    facts = read_facts(recurrent_model(tmp_path / "m.gguf", n_layer=2))
    assert facts.kv_heads == (0, 0)
    assert facts.recurrent_layers == 2
    assert facts.recurrence is not None
    assert facts.recurrence.state > 0


def test_embedders_and_rerankers_say_how_they_pool(tmp_path: Path) -> None:
    embedder = read_facts(embedding_model(tmp_path / "e.gguf"))
    reranker = read_facts(reranking_model(tmp_path / "r.gguf"))
    assert (embedder.pooling, embedder.causal) == ("mean", False)
    assert reranker.pooling == "rank"


def test_an_adapter_is_no_model_and_an_unknown_architecture_is_still_read(tmp_path: Path) -> None:
    assert read_facts(lora_adapter(tmp_path / "a.gguf")).kind == "adapter"
    assert read_facts(unknown_architecture(tmp_path / "u.gguf")).architecture == "quetzalcoatl"


def test_recommended_sampling_has_the_names_of_requests(tmp_path: Path) -> None:
    entries = [
        g.string("general.architecture", "llama"),
        g.f32("general.sampling.temp", 0.5),
        g.u32("general.sampling.top_k", 20),
        g.u32("general.sampling.penalty_last_n", 32),
        g.string("general.sampling.top_p", "not a number"),
    ]
    facts = read_facts(g.write(tmp_path / "m.gguf", g.header(entries)))
    assert facts.sampling == {"temperature": 0.5, "top_k": 20, "repeat_last_n": 32}


def test_a_projector_says_what_it_takes(tmp_path: Path) -> None:
    entries = [
        g.string("general.architecture", "clip"),
        g.flag("clip.has_vision_encoder", True),
        g.flag("clip.has_audio_encoder", True),
    ]
    facts = read_facts(g.write(tmp_path / "mmproj.gguf", g.header(entries)))
    assert (facts.kind, facts.sees, facts.hears) == ("mmproj", True, True)


def test_numbers_per_layer_may_be_an_array_that_is_too_short_or_too_long(tmp_path: Path) -> None:
    for count in (0, 2, 9):
        heads = g.array(
            "llama.attention.head_count_kv", g.INT32, count, struct.pack(f"<{count}i", *range(1, count + 1))
        )
        entries = [g.string("general.architecture", "llama"), g.u32("llama.block_count", 4), heads]
        facts = read_facts(g.write(tmp_path / f"{count}.gguf", g.header(entries)))
        assert len(facts.kv_heads) == 4


def test_a_model_of_impossibly_many_layers_is_refused(tmp_path: Path) -> None:
    entries = [g.string("general.architecture", "llama"), g.u32("llama.block_count", 5_000)]
    with pytest.raises(BadHeader, match="layers"):
        read_facts(g.write(tmp_path / "m.gguf", g.header(entries)))


def test_a_file_without_an_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadHeader, match="architecture"):
        read_facts(g.write(tmp_path / "m.gguf", g.header([])))


def test_shards_are_one_model(tmp_path: Path) -> None:
    head = [g.string("general.architecture", "llama"), g.u32("llama.block_count", 2)]
    first = g.header(head, [g.tensor("blk.0.ffn_up.weight", [32])])
    second = g.header([g.u32("split.no", 1)], [g.tensor("blk.1.ffn_up.weight", [64])])
    path = g.write(tmp_path / "m-00001-of-00002.gguf", first, 128)
    with pytest.raises(BadHeader, match="m-00002-of-00002"):
        read_facts(path)
    g.write(tmp_path / "m-00002-of-00002.gguf", second, 256)
    facts = read_facts(path)
    assert facts.layer_bytes == (128, 256)
    assert [size for _, _, size in facts.files] == [128, 256]
    assert len(shards(path)) == 2


def test_a_name_that_claims_absurdly_many_shards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadHeader, match="99999 shards"):
        shards(tmp_path / "m-00001-of-99999.gguf")


def test_numbers_that_no_model_can_have_count_as_absent(tmp_path: Path) -> None:
    negative = g.text("llama.embedding_length") + struct.pack("<Ii", g.INT32, -576)
    enormous = g.text("llama.context_length") + struct.pack("<IQ", g.UINT64, 1 << 60)
    heads = g.array("llama.attention.head_count", g.INT32, 2, struct.pack("<ii", -1, 8))
    entries = [g.string("general.architecture", "llama"), g.u32("llama.block_count", 2), negative, enormous, heads]
    facts = read_facts(g.write(tmp_path / "m.gguf", g.header(entries)))
    assert (facts.n_embd, facts.n_ctx_train, facts.kv_heads, facts.n_head) == (0, 0, (0, 8), 8)

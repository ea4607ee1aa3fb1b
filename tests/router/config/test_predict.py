from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from protocol.load import LoadParameters, WorkerSettings
from router.config.facts import Identity, ModelFacts, Recurrence, read_facts
from router.config.predict import CPU_CONTEXT, GPU_CONTEXT, choose_context, compute_bytes, kv_bytes, predict, sequences
from tests.factory import embedding_model
from worker.placement import shelf_bytes

MIB = 1 << 20
PARAMETERS = LoadParameters("m.gguf", ctx_size=4096)
FACTS = ModelFacts(
    architecture="llama",
    n_ctx_train=131_072,
    n_embd=1024,
    n_vocab=32_000,
    n_ff=4096,
    n_head=16,
    key_length=64,
    value_length=64,
    kv_heads=(4, 4, 4, 4),
    sliding=(False, False, False, False),
    n_params=100,
    tensor_bytes=600 * MIB,
    output_bytes=100 * MIB,
    layer_bytes=(100 * MIB,) * 4,
    expert_bytes=(60 * MIB,) * 4,
    files=(("m.gguf", Identity(1, 2, 3, 4), 600 * MIB),),
)


def but(**changes: object) -> LoadParameters:
    changed: LoadParameters = msgspec.structs.replace(PARAMETERS, **changes)
    return changed


def facts(**changes: object) -> ModelFacts:
    changed: ModelFacts = msgspec.structs.replace(FACTS, **changes)
    return changed


def test_a_plain_cache_has_k_and_v_for_every_cell() -> None:
    assert kv_bytes(FACTS, PARAMETERS, 4096) == (4096 * 4 * (64 + 64) * 2,) * 4


def test_cells_come_in_steps() -> None:
    assert kv_bytes(FACTS, PARAMETERS, 4000) == kv_bytes(FACTS, PARAMETERS, 4096)


def test_quantised_caches_are_smaller() -> None:
    quantised = kv_bytes(FACTS, but(cache_type_k="q8_0", cache_type_v="q4_0"), 4096)
    assert quantised == (4096 * 4 * (64 * 34 // 32 + 64 * 18 // 32),) * 4


def test_a_window_bounds_the_cache_of_its_layers() -> None:
    windowed = facts(window=512, sliding=(True, False, True, False))
    sizes = kv_bytes(windowed, but(slots=4, ubatch_size=512), 32_768)
    cell = 4 * (64 + 64) * 2
    assert sequences(windowed, but(slots=4)) == 8
    assert sizes == ((8 * 512 + 512) * cell, 32_768 * cell) * 2
    assert kv_bytes(windowed, but(swa_full=True), 32_768) == (32_768 * cell,) * 4


def test_recurrent_layers_keep_one_state_per_sequence_whatever_the_context() -> None:
    hybrid = facts(kv_heads=(0, 4, 0, 4), recurrence=Recurrence(100, 1_000))
    short, long = kv_bytes(hybrid, but(slots=3), 256), kv_bytes(hybrid, but(slots=3), 8192)
    assert short[0] == long[0] == 4 * 8 * 1_100
    assert long[1] == 32 * short[1]


def test_latent_attention_keeps_one_vector_per_cell() -> None:
    assert kv_bytes(facts(latent_kv=576), PARAMETERS, 1024) == (1024 * 576 * 2,) * 4


def test_an_encoder_keeps_nothing(tmp_path: Path) -> None:
    embedder = read_facts(embedding_model(tmp_path / "e.gguf"))
    assert sum(kv_bytes(embedder, PARAMETERS, 4096)) == 0


def test_scores_without_flash_attention_grow_with_the_context() -> None:
    off = but(flash_attn="off")
    grown = compute_bytes(FACTS, off, 32_768) - compute_bytes(FACTS, off, 4096)
    assert grown == pytest.approx(1.1 * 4 * 512 * 16 * (32_768 - 4096), rel=0.01)


def test_many_sequences_of_a_large_vocabulary_need_room_for_their_logits() -> None:
    large = facts(n_vocab=262_144)
    assert compute_bytes(large, but(slots=16), 256) > 2 * 4 * 32 * 262_144


def test_embeddings_compute_a_whole_input_at_once() -> None:
    embedder = but(embeddings=True)
    assert compute_bytes(FACTS, embedder, 8192) > 2 * compute_bytes(FACTS, PARAMETERS, 8192)
    assert choose_context(FACTS, embedder, False, None) == 8192


def test_what_was_measured_is_predicted_within_a_quarter() -> None:
    """Two models measured on a CPU with four slots: private bytes after some tokens."""
    smollm = facts(
        n_embd=576,
        n_ff=1536,
        n_head=9,
        n_vocab=49_152,
        kv_heads=(3,) * 30,
        sliding=(False,) * 30,
        layer_bytes=(1,) * 30,
    )
    gemma = facts(
        n_embd=640,
        n_ff=2048,
        n_head=4,
        n_vocab=262_144,
        key_length=256,
        value_length=256,
        kv_heads=(1,) * 18,
        sliding=((True,) * 5 + (False,)) * 3,
        window=512,
        layer_bytes=(1,) * 18,
    )
    for model, ctx_size, measured in ((smollm, 8192, 249_212_928), (gemma, 32_768, 280_338_432)):
        (host,) = predict(model, but(ctx_size=ctx_size))
        assert host.need().private == pytest.approx(measured, rel=0.25)


def test_on_the_cpu_everything_is_on_the_host_and_mapped_bytes_are_shared() -> None:
    (host,) = predict(FACTS, PARAMETERS)
    need = host.need()
    assert need.device == "host"
    assert need.shared == (("1:2", 600 * MIB),)
    assert need.private == host.total - 600 * MIB
    (unmapped,) = predict(FACTS, but(mmap=False))
    assert unmapped.need().shared == ()
    assert unmapped.need().private == host.total


@pytest.mark.parametrize(
    ("layers", "weights"),
    [(0, 0), (1, 100), (4, 400), (5, 500), (99, 500), (-1, 500)],
)
def test_offloaded_layers_take_their_weights_and_cache_along(layers: int, weights: int) -> None:
    host, gpu = predict(FACTS, but(n_gpu_layers=layers), gpu="CUDA0")
    assert gpu.weights == weights * MIB
    assert host.weights == (600 - weights) * MIB
    assert gpu.context + host.context == sum(kv_bytes(FACTS, PARAMETERS, 4096))
    assert sum(size for _, size in host.shared) == host.weights


def test_experts_may_stay_behind() -> None:
    _, everything = predict(FACTS, but(n_gpu_layers=-1), gpu="CUDA0")
    _, some = predict(FACTS, but(n_gpu_layers=-1, n_cpu_moe=2), gpu="CUDA0")
    _, none = predict(FACTS, but(n_gpu_layers=-1, n_cpu_moe=100), gpu="CUDA0")
    assert everything.weights - some.weights == 120 * MIB
    assert everything.weights - none.weights == 240 * MIB


def test_a_projector_and_a_draft_are_counted() -> None:
    (alone,) = predict(FACTS, PARAMETERS)
    (more,) = predict(FACTS, PARAMETERS, projector=facts(tensor_bytes=10 * MIB), draft=facts(tensor_bytes=20 * MIB))
    assert more.weights - alone.weights == 30 * MIB
    assert more.compute > alone.compute


def test_caches_are_shown_beside_the_need_and_are_no_part_of_it() -> None:
    (bare,) = predict(FACTS, PARAMETERS, settings=WorkerSettings(shelf_bytes=0))
    (host,) = predict(FACTS, PARAMETERS, settings=WorkerSettings(shelf_bytes=8192 * MIB))
    assert (bare.caches, host.caches) == (0, 8192 * MIB)
    assert bare.need() == host.need(), "a limit of 8 GiB refuses nothing on a machine with less"
    settings = WorkerSettings(shelf_bytes=MIB, media_cache_bytes=10 * MIB)
    (seeing,) = predict(FACTS, PARAMETERS, projector=facts(tensor_bytes=MIB), settings=settings)
    assert seeing.caches == 11 * MIB
    host, gpu = predict(FACTS, but(n_gpu_layers=2), gpu="CUDA0", settings=settings)
    assert (host.caches, gpu.caches) == (MIB, 0)
    (embedder,) = predict(FACTS, but(embeddings=True), settings=settings)
    assert embedder.caches == 0


@pytest.mark.parametrize("free", [1 << 30, 7 << 30, 64 << 30])
def test_an_unset_limit_is_what_the_worker_will_choose(free: int) -> None:
    (host,) = predict(FACTS, PARAMETERS, free=free)
    assert host.caches == shelf_bytes(free)


def test_the_context_is_what_was_trained_within_a_limit_per_kind_of_device() -> None:
    assert choose_context(FACTS, PARAMETERS, False, None) == CPU_CONTEXT
    assert choose_context(FACTS, PARAMETERS, True, None) == GPU_CONTEXT
    assert choose_context(facts(n_ctx_train=2048), PARAMETERS, True, None) == 2048


def test_the_context_shrinks_until_it_fits_but_not_to_nothing() -> None:
    wanted = 720 * MIB
    size = choose_context(FACTS, PARAMETERS, False, wanted)
    assert 2048 <= size < CPU_CONTEXT
    (host,) = predict(FACTS, but(ctx_size=size))
    assert host.total <= wanted + MIB
    assert choose_context(FACTS, PARAMETERS, False, 1) == 2048

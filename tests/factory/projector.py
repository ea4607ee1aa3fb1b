"""Projectors: what turns images and sounds into embeddings that a language model reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.factory.weights import Weights

PATCH, SIDE = 14, 2
"""Pixels of a patch's side, and patches of an image's side."""
IMAGE_TOKENS = SIDE * SIDE
"""Embeddings that one image becomes."""
GEMMA_SIDE, GEMMA_TOKENS = 8, 4
"""Patches of an image's side for the projector whose embeddings see one another, and what its images become."""
MEL_BINS, FRAMES, STACKED = 80, 3_000, 100
"""What a sound of up to 30 seconds is cut to, and the frames that become one embedding."""
SOUND_TOKENS = FRAMES // STACKED // 2


def projector(path: Path, *, seed: int = 5, n_embd_text: int = 64, n_embd: int = 32, n_layer: int = 2) -> Path:
    """A LLaVA projector for a language model with `n_embd_text` values per token; images are cut to 28 × 28."""
    weights = _vision(path, "mlp", seed, PATCH * SIDE, n_embd, n_layer, n_embd_text)
    weights.put("v.patch_embd.weight", weights.normal(n_embd, 3, PATCH, PATCH) / (3 * PATCH * PATCH) ** 0.5)
    weights.put("v.position_embd.weight", weights.normal(IMAGE_TOKENS + 1, n_embd) * 0.1)
    weights.put("v.class_embd", weights.normal(n_embd))
    _norm(weights, "v.pre_ln", n_embd)
    _linear(weights, "mm.0", n_embd_text, n_embd)
    _linear(weights, "mm.2", n_embd_text, n_embd_text)
    return weights.finish()


def gemma_projector(path: Path, *, seed: int = 6, n_embd_text: int = 64, n_embd: int = 32, n_layer: int = 2) -> Path:
    """A Gemma 3 projector: the embeddings of an image see one another, so that all must be computed at once."""
    weights = _vision(path, "gemma3", seed, PATCH * GEMMA_SIDE, n_embd, n_layer, n_embd_text)
    _linear(weights, "v.patch_embd", n_embd, 0, shape=(n_embd, 3, PATCH, PATCH))
    weights.put("v.position_embd.weight", weights.normal(GEMMA_SIDE**2, n_embd) * 0.1)
    weights.ones("mm.soft_emb_norm.weight", n_embd)
    weights.matrix("mm.input_projection.weight", n_embd, n_embd_text)
    return weights.finish()


def qwen_projector(path: Path, *, seed: int = 7, n_embd_text: int = 64, n_embd: int = 32, n_layer: int = 2) -> Path:
    """A Qwen2-VL projector: images of any size, whose embeddings have positions in a grid."""
    weights = _vision(path, "qwen2vl_merger", seed, 560, n_embd, n_layer, n_embd_text)
    for name in ("v.patch_embd.weight", "v.patch_embd.weight.1"):
        weights.put(name, weights.normal(n_embd, 3, PATCH, PATCH) / (3 * PATCH * PATCH) ** 0.5)
    _linear(weights, "mm.0", 4 * n_embd, 4 * n_embd)
    _linear(weights, "mm.2", n_embd_text, 4 * n_embd)
    return weights.finish()


def hearing_projector(path: Path, *, seed: int = 8, n_embd_text: int = 64, n_embd: int = 16, n_layer: int = 1) -> Path:
    """An Ultravox projector behind a Whisper encoder: sounds, and no images."""
    weights = _projector(path, "audio", "ultravox", seed, n_embd, n_layer, n_embd_text)
    weights.writer.add_uint32("clip.audio.num_mel_bins", MEL_BINS)
    weights.writer.add_uint32("clip.audio.projector.stack_factor", STACKED)
    for number, channels in ((1, MEL_BINS), (2, n_embd)):
        weights.put(f"a.conv1d.{number}.weight", weights.normal(n_embd, channels, 3) / (3 * channels) ** 0.5)
        weights.zeros(f"a.conv1d.{number}.bias", n_embd, 1)
    weights.put("a.position_embd.weight", weights.normal(FRAMES // 2, n_embd) * 0.1)
    _norm(weights, "a.post_ln", n_embd)
    _layers(weights, "a", n_embd, n_layer, key_bias=False)
    weights.ones("mm.a.norm_pre.weight", STACKED * n_embd)
    weights.matrix("mm.a.mlp.1.weight", 2 * n_embd, STACKED * n_embd)
    weights.ones("mm.a.norm_mid.weight", n_embd)
    weights.matrix("mm.a.mlp.2.weight", n_embd_text, n_embd)
    return weights.finish()


def _vision(path: Path, kind: str, seed: int, image: int, n_embd: int, n_layer: int, n_embd_text: int) -> Weights:
    """What all vision encoders have in common."""
    weights = _projector(path, "vision", kind, seed, n_embd, n_layer, n_embd_text)
    weights.writer.add_uint32("clip.vision.image_size", image)
    weights.writer.add_uint32("clip.vision.patch_size", PATCH)
    weights.writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    weights.writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    _norm(weights, "v.post_ln", n_embd)
    _layers(weights, "v", n_embd, n_layer)
    return weights


def _projector(path: Path, sense: str, kind: str, seed: int, n_embd: int, n_layer: int, n_embd_text: int) -> Weights:
    weights = Weights(path, "clip", seed)
    writer = weights.writer
    writer.add_type("mmproj")
    writer.add_name("tiny-projector")
    writer.add_file_type(0)
    writer.add_bool(f"clip.has_{sense}_encoder", True)
    writer.add_string("clip.projector_type", kind)
    writer.add_bool("clip.use_gelu", True)
    for key, value in {
        "embedding_length": n_embd,
        "feed_forward_length": 2 * n_embd,
        "projection_dim": n_embd_text,
        "block_count": n_layer,
        "attention.head_count": 2,
    }.items():
        writer.add_uint32(f"clip.{sense}.{key}", value)
    writer.add_float32(f"clip.{sense}.attention.layer_norm_epsilon", 1e-5)
    return weights


def _layers(weights: Weights, prefix: str, n_embd: int, n_layer: int, key_bias: bool = True) -> None:
    for i in range(n_layer):
        _norm(weights, f"{prefix}.blk.{i}.ln1", n_embd)
        _norm(weights, f"{prefix}.blk.{i}.ln2", n_embd)
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            _linear(weights, f"{prefix}.blk.{i}.{part}", n_embd, n_embd, bias=key_bias or part != "attn_k")
        _linear(weights, f"{prefix}.blk.{i}.ffn_up", 2 * n_embd, n_embd)
        _linear(weights, f"{prefix}.blk.{i}.ffn_down", n_embd, 2 * n_embd)


def _linear(
    weights: Weights, name: str, rows: int, columns: int, bias: bool = True, shape: tuple[int, ...] = ()
) -> None:
    """A map with a bias; `shape` replaces rows and columns."""
    if shape:
        weights.put(f"{name}.weight", weights.normal(*shape) / float(np.prod(shape[1:])) ** 0.5)
    else:
        weights.matrix(f"{name}.weight", rows, columns)
    if bias:
        weights.put(f"{name}.bias", np.zeros(rows, np.float32))


def _norm(weights: Weights, name: str, size: int) -> None:
    weights.ones(f"{name}.weight", size)
    weights.zeros(f"{name}.bias", size)

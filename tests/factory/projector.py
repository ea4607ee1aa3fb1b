"""A projector: what turns an image into embeddings that a language model reads."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.factory.weights import Weights

PATCH, SIDE = 14, 2
"""Pixels of a patch's side, and patches of an image's side."""
IMAGE_TOKENS = SIDE * SIDE
"""Embeddings that one image becomes."""


def projector(path: Path, *, seed: int = 5, n_embd_text: int = 64, n_embd: int = 32) -> Path:
    """A LLaVA projector for a language model with `n_embd_text` values per token; images are cut to 28 × 28."""
    n_layer, n_head, n_ff = 2, 2, 2 * n_embd
    weights = Weights(path, "clip", seed)
    writer = weights.writer
    writer.add_type("mmproj")
    writer.add_name("tiny-projector")
    writer.add_file_type(0)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "mlp")
    writer.add_bool("clip.use_gelu", True)
    for key, value in {
        "image_size": PATCH * SIDE,
        "patch_size": PATCH,
        "embedding_length": n_embd,
        "feed_forward_length": n_ff,
        "projection_dim": n_embd_text,
        "block_count": n_layer,
        "attention.head_count": n_head,
    }.items():
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-5)
    writer.add_array("clip.vision.image_mean", [0.5, 0.5, 0.5])
    writer.add_array("clip.vision.image_std", [0.5, 0.5, 0.5])
    weights.put("v.patch_embd.weight", weights.normal(n_embd, 3, PATCH, PATCH) / (3 * PATCH * PATCH) ** 0.5)
    weights.put("v.position_embd.weight", weights.normal(IMAGE_TOKENS + 1, n_embd) * 0.1)
    weights.put("v.class_embd", weights.normal(n_embd))
    _norm(weights, "v.pre_ln", n_embd)
    _norm(weights, "v.post_ln", n_embd)
    for i in range(n_layer):
        _norm(weights, f"v.blk.{i}.ln1", n_embd)
        _norm(weights, f"v.blk.{i}.ln2", n_embd)
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            _linear(weights, f"v.blk.{i}.{part}", n_embd, n_embd)
        _linear(weights, f"v.blk.{i}.ffn_up", n_ff, n_embd)
        _linear(weights, f"v.blk.{i}.ffn_down", n_embd, n_ff)
    _linear(weights, "mm.0", n_embd_text, n_embd)
    _linear(weights, "mm.2", n_embd_text, n_embd_text)
    return weights.finish()


def _linear(weights: Weights, name: str, rows: int, columns: int) -> None:
    weights.matrix(f"{name}.weight", rows, columns)
    weights.put(f"{name}.bias", np.zeros(rows, np.float32))


def _norm(weights: Weights, name: str, size: int) -> None:
    weights.ones(f"{name}.weight", size)
    weights.zeros(f"{name}.bias", size)

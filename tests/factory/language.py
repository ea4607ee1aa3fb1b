"""Language models of each memory kind: full attention, sliding window, recurrent, hybrid."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from tests.factory.vocabulary import CHAT_TEMPLATE, Vocabulary, sentence_piece_vocabulary
from tests.factory.weights import Weights

NEVER = -60.0
"""An `end_bias` that keeps a model from ending by itself."""


def language_model(
    path: Path,
    *,
    seed: int = 1,
    n_ctx_train: int = 4096,
    n_layer: int = 2,
    n_embd: int = 64,
    n_ff: int = 128,
    n_head: int = 4,
    n_head_kv: int = 2,
    sharpness: float = 3.0,
    end_bias: float = NEVER,
    chat_template: str | None = CHAT_TEMPLATE,
    tool_use_template: str = "",
    name: str = "tiny",
    vocabulary: Vocabulary | None = None,
) -> Path:
    """A Llama: full attention in every layer. It babbles common words, the same ones for the same seed.

    `sharpness` is how sure of itself it is, `end_bias` how likely the end token (about 3 ends after a few words).
    """
    vocabulary = vocabulary or sentence_piece_vocabulary()
    weights = Weights(path, "llama", seed)
    _describe(weights.writer, vocabulary, name, chat_template, tool_use_template)
    _shape(weights.writer, n_ctx_train, n_layer, n_embd, n_ff)
    _attention(weights.writer, n_head, n_head_kv, n_embd // n_head)
    weights.embeddings(len(vocabulary), n_embd)
    for i in range(n_layer):
        weights.ones(f"blk.{i}.attn_norm.weight", n_embd)
        _attention_tensors(weights, i, n_embd, n_head, n_head_kv, n_embd // n_head)
        _feed_forward(weights, i, n_embd, n_ff)
    weights.output(vocabulary, n_embd, sharpness, end_bias)
    return weights.finish()


def grid_model(
    path: Path,
    *,
    seed: int = 1,
    n_ctx_train: int = 4096,
    n_layer: int = 2,
    n_embd: int = 64,
    sharpness: float = 3.0,
) -> Path:
    """A Qwen2-VL: positions of four sections (M-RoPE), which text has all alike."""
    n_ff, n_head, n_head_kv = 2 * n_embd, 4, 2
    head = n_embd // n_head
    vocabulary = sentence_piece_vocabulary()
    weights = Weights(path, "qwen2vl", seed)
    _describe(weights.writer, vocabulary, "tiny-grid", CHAT_TEMPLATE)
    _shape(weights.writer, n_ctx_train, n_layer, n_embd, n_ff)
    _attention(weights.writer, n_head, n_head_kv, head)
    weights.writer.add_rope_dimension_sections([2, 3, 3, 0])
    weights.embeddings(len(vocabulary), n_embd)
    for i in range(n_layer):
        weights.ones(f"blk.{i}.attn_norm.weight", n_embd)
        _attention_tensors(weights, i, n_embd, n_head, n_head_kv, head)
        _feed_forward(weights, i, n_embd, n_ff)
    weights.output(vocabulary, n_embd, sharpness, NEVER)
    return weights.finish()


def sliding_window_model(
    path: Path,
    *,
    seed: int = 1,
    n_ctx_train: int = 4096,
    window: int = 64,
    n_layer: int = 6,
    n_embd: int = 64,
    sharpness: float = 3.0,
    end_bias: float = NEVER,
    chat_template: str | None = CHAT_TEMPLATE,
) -> Path:
    """A Gemma 3: five layers that see `window` tokens to one that sees all."""
    n_ff, n_head, n_head_kv = 2 * n_embd, 4, 1
    head = n_embd // n_head
    vocabulary = sentence_piece_vocabulary()
    weights = Weights(path, "gemma3", seed)
    _describe(weights.writer, vocabulary, "tiny-window", chat_template)
    _shape(weights.writer, n_ctx_train, n_layer, n_embd, n_ff)
    _attention(weights.writer, n_head, n_head_kv, head)
    weights.writer.add_key_length(head)
    weights.writer.add_value_length(head)
    weights.writer.add_sliding_window(window)
    weights.embeddings(len(vocabulary), n_embd)
    post_norm = np.full(n_embd, 0.5, np.float32)
    post_norm[0] = 0.0
    for i in range(n_layer):
        weights.ones(f"blk.{i}.attn_norm.weight", n_embd)
        _attention_tensors(weights, i, n_embd, n_head, n_head_kv, head)
        weights.ones(f"blk.{i}.attn_q_norm.weight", head)
        weights.ones(f"blk.{i}.attn_k_norm.weight", head)
        weights.put(f"blk.{i}.post_attention_norm.weight", post_norm)
        _feed_forward(weights, i, n_embd, n_ff)
        weights.put(f"blk.{i}.post_ffw_norm.weight", post_norm)
    weights.output(vocabulary, n_embd, sharpness, end_bias)
    return weights.finish()


def recurrent_model(
    path: Path,
    *,
    seed: int = 1,
    n_ctx_train: int = 4096,
    n_layer: int = 2,
    n_embd: int = 64,
    sharpness: float = 3.0,
    end_bias: float = NEVER,
    chat_template: str | None = CHAT_TEMPLATE,
) -> Path:
    """A Mamba: no KV cache, one state per sequence."""
    vocabulary = sentence_piece_vocabulary()
    weights = Weights(path, "mamba", seed)
    _describe(weights.writer, vocabulary, "tiny-recurrent", chat_template)
    _shape(weights.writer, n_ctx_train, n_layer, n_embd, 0)
    weights.writer.add_head_count(0)
    weights.writer.add_layer_norm_rms_eps(1e-5)
    _state_space(weights.writer, n_embd)
    weights.embeddings(len(vocabulary), n_embd)
    for i in range(n_layer):
        weights.ones(f"blk.{i}.attn_norm.weight", n_embd)
        _state_space_tensors(weights, i, n_embd, normed=False)
    weights.output(vocabulary, n_embd, sharpness, end_bias)
    return weights.finish()


def hybrid_model(
    path: Path,
    *,
    seed: int = 1,
    n_ctx_train: int = 4096,
    n_embd: int = 64,
    sharpness: float = 3.0,
    end_bias: float = NEVER,
    chat_template: str | None = CHAT_TEMPLATE,
) -> Path:
    """A Jamba: recurrent layers with an attention layer between them."""
    n_ff, n_head, heads_kv = 2 * n_embd, 4, [0, 2, 0]
    vocabulary = sentence_piece_vocabulary()
    weights = Weights(path, "jamba", seed)
    _describe(weights.writer, vocabulary, "tiny-hybrid", chat_template)
    _shape(weights.writer, n_ctx_train, len(heads_kv), n_embd, n_ff)
    weights.writer.add_head_count(n_head)
    weights.writer.add_head_count_kv(heads_kv)
    weights.writer.add_layer_norm_rms_eps(1e-5)
    _state_space(weights.writer, n_embd)
    weights.embeddings(len(vocabulary), n_embd)
    for i, n_head_kv in enumerate(heads_kv):
        weights.ones(f"blk.{i}.attn_norm.weight", n_embd)
        if n_head_kv:
            _attention_tensors(weights, i, n_embd, n_head, n_head_kv, n_embd // n_head)
        else:
            _state_space_tensors(weights, i, n_embd, normed=True)
        _feed_forward(weights, i, n_embd, n_ff)
    weights.output(vocabulary, n_embd, sharpness, end_bias)
    return weights.finish()


def _describe(
    writer: GGUFWriter, vocabulary: Vocabulary, name: str, chat_template: str | None, tool_use_template: str = ""
) -> None:
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(0)
    vocabulary.write(writer)
    if chat_template is not None and tool_use_template:
        writer.add_chat_template(
            [{"name": "default", "template": chat_template}, {"name": "tool_use", "template": tool_use_template}]
        )
    elif chat_template is not None:
        writer.add_chat_template(chat_template)


def _shape(writer: GGUFWriter, n_ctx_train: int, n_layer: int, n_embd: int, n_ff: int) -> None:
    writer.add_context_length(n_ctx_train)
    writer.add_block_count(n_layer)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(n_ff)


def _attention(writer: GGUFWriter, n_head: int, n_head_kv: int, head: int) -> None:
    writer.add_head_count(n_head)
    writer.add_head_count_kv(n_head_kv)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(head)
    writer.add_rope_freq_base(10_000.0)


def _attention_tensors(weights: Weights, i: int, n_embd: int, n_head: int, n_head_kv: int, head: int) -> None:
    weights.matrix(f"blk.{i}.attn_q.weight", n_head * head, n_embd)
    weights.matrix(f"blk.{i}.attn_k.weight", n_head_kv * head, n_embd)
    weights.matrix(f"blk.{i}.attn_v.weight", n_head_kv * head, n_embd)
    weights.residual(f"blk.{i}.attn_output.weight", n_embd, n_head * head)


def _feed_forward(weights: Weights, i: int, n_embd: int, n_ff: int) -> None:
    weights.ones(f"blk.{i}.ffn_norm.weight", n_embd)
    weights.matrix(f"blk.{i}.ffn_gate.weight", n_ff, n_embd)
    weights.matrix(f"blk.{i}.ffn_up.weight", n_ff, n_embd)
    weights.residual(f"blk.{i}.ffn_down.weight", n_embd, n_ff)


_D_CONV, _D_STATE, _DT_RANK = 4, 16, 8


def _state_space(writer: GGUFWriter, n_embd: int) -> None:
    writer.add_ssm_conv_kernel(_D_CONV)
    writer.add_ssm_inner_size(2 * n_embd)
    writer.add_ssm_state_size(_D_STATE)
    writer.add_ssm_time_step_rank(_DT_RANK)


def _state_space_tensors(weights: Weights, i: int, n_embd: int, *, normed: bool) -> None:
    inner = 2 * n_embd
    weights.matrix(f"blk.{i}.ssm_in.weight", 2 * inner, n_embd)
    weights.matrix(f"blk.{i}.ssm_conv1d.weight", inner, _D_CONV)
    weights.zeros(f"blk.{i}.ssm_conv1d.bias", inner)
    weights.matrix(f"blk.{i}.ssm_x.weight", _DT_RANK + 2 * _D_STATE, inner)
    weights.matrix(f"blk.{i}.ssm_dt.weight", inner, _DT_RANK)
    weights.zeros(f"blk.{i}.ssm_dt.bias", inner)
    weights.put(f"blk.{i}.ssm_a", -np.tile(np.arange(1, _D_STATE + 1, dtype=np.float32), (inner, 1)))
    weights.ones(f"blk.{i}.ssm_d", inner)
    weights.residual(f"blk.{i}.ssm_out.weight", n_embd, inner)
    if normed:
        weights.ones(f"blk.{i}.ssm_dt_norm.weight", _DT_RANK)
        weights.ones(f"blk.{i}.ssm_b_norm.weight", _D_STATE)
        weights.ones(f"blk.{i}.ssm_c_norm.weight", _D_STATE)

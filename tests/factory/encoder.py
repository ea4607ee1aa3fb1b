"""Encoders: embeddings, and the score of a query and a document."""

from __future__ import annotations

from pathlib import Path

from gguf import PoolingType

from tests.factory.vocabulary import word_piece_vocabulary
from tests.factory.weights import Weights


def embedding_model(
    path: Path, *, seed: int = 1, n_ctx_train: int = 256, n_embd: int = 32, pooling: PoolingType = PoolingType.MEAN
) -> Path:
    """A BERT whose vectors are pooled as said."""
    return _encoder(path, "tiny-embedder", seed, n_ctx_train, n_embd, pooling).finish()


def reranking_model(path: Path, *, seed: int = 1, n_ctx_train: int = 256, n_embd: int = 32) -> Path:
    """A BERT with a classifier that gives one score."""
    weights = _encoder(path, "tiny-reranker", seed, n_ctx_train, n_embd, PoolingType.RANK)
    weights.writer.add_classifier_output_labels(["score"])
    weights.matrix("cls.weight", n_embd, n_embd)
    weights.zeros("cls.bias", n_embd)
    weights.matrix("cls.output.weight", 1, n_embd)
    weights.zeros("cls.output.bias", 1)
    return weights.finish()


def _encoder(path: Path, name: str, seed: int, n_ctx_train: int, n_embd: int, pooling: PoolingType) -> Weights:
    n_layer, n_head, n_ff = 2, 4, 2 * n_embd
    vocabulary = word_piece_vocabulary()
    weights = Weights(path, "bert", seed)
    writer = weights.writer
    writer.add_type("model")
    writer.add_name(name)
    writer.add_file_type(0)
    vocabulary.write(writer)
    writer.add_token_type_count(2)
    writer.add_context_length(n_ctx_train)
    writer.add_block_count(n_layer)
    writer.add_embedding_length(n_embd)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(n_head)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    weights.matrix("token_embd.weight", len(vocabulary), n_embd, scale=n_embd**0.5)
    weights.matrix("token_types.weight", 2, n_embd)
    weights.matrix("position_embd.weight", n_ctx_train, n_embd)
    _norm(weights, "token_embd_norm", n_embd)
    for i in range(n_layer):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights.matrix(f"blk.{i}.{part}.weight", n_embd, n_embd)
            weights.zeros(f"blk.{i}.{part}.bias", n_embd)
        _norm(weights, f"blk.{i}.attn_output_norm", n_embd)
        weights.matrix(f"blk.{i}.ffn_up.weight", n_ff, n_embd)
        weights.zeros(f"blk.{i}.ffn_up.bias", n_ff)
        weights.matrix(f"blk.{i}.ffn_down.weight", n_embd, n_ff)
        weights.zeros(f"blk.{i}.ffn_down.bias", n_embd)
        _norm(weights, f"blk.{i}.layer_output_norm", n_embd)
    return weights


def _norm(weights: Weights, name: str, size: int) -> None:
    weights.ones(f"{name}.weight", size)
    weights.zeros(f"{name}.bias", size)

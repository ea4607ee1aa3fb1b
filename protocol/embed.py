"""Embeddings and reranking."""

from __future__ import annotations

from msgspec import Struct

from protocol.chat import Prompt


class Embed(Struct, frozen=True, tag="embed", omit_defaults=True):
    """`normalize`: -1 none, 0 largest absolute value 32760, 1 taxicab, 2 Euclidean, above: that p-norm."""

    request: int
    inputs: tuple[Prompt, ...]
    normalize: int = 2
    dimensions: int = 0


class Embedded(Struct, frozen=True, tag="embedded", omit_defaults=True):
    """`vectors[i]` holds the vectors of input i as little-endian float32: one, or one per token without pooling."""

    request: int
    vectors: tuple[tuple[bytes, ...], ...]
    n_tokens: tuple[int, ...]


class Rerank(Struct, frozen=True, tag="rerank", omit_defaults=True):
    request: int
    query: str
    documents: tuple[str, ...]


class Reranked(Struct, frozen=True, tag="reranked", omit_defaults=True):
    """`scores[i]` belongs to document i, higher is more relevant."""

    request: int
    scores: tuple[float, ...]
    n_tokens: int

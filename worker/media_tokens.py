"""Tokens that stand for embeddings: made from the content of a file, so that equal files are equal prefixes.

A chunk of an image or a sound takes as many cells of the cache as it has embeddings, and a prompt holds one number
below zero for each. They are a hash of the file, so that whatever compares tokens (the prefix cache, the shelf, files
of kept state) tells files apart without knowing of them. The first number of a chunk is marked as such: a chunk is
shared and dropped as a whole. Where a chunk takes fewer positions than cells (M-RoPE), the first one says how many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Tokens = Sequence[int] | npt.NDArray[np.int32]

_FIRST = 1 << 30
_COUNTED = 1 << 29
_POSITIONS = (1 << 16) - 1
_SIGN = -(1 << 31)


def media_tokens(digest: bytes, chunk: int, n_tokens: int, n_positions: int) -> tuple[int, ...]:
    """The tokens of one chunk of a file. Raises `ValueError` for sizes that cannot be written.

    Four tokens or more hold over 100 bits of the digest.
    """
    if n_tokens < 1 or not 0 < n_positions <= n_tokens or (n_positions < n_tokens and n_positions >= _POSITIONS):
        raise ValueError(f"a chunk of {n_tokens} embeddings and {n_positions} positions")
    stream = hashlib.shake_256(digest + chunk.to_bytes(4, "little")).digest(4 * n_tokens)
    words = np.frombuffer(stream, "<u4").astype(np.int64) & (_FIRST - 1)
    tokens = (words + _SIGN).tolist()
    first = int(words[0]) & (_COUNTED - 1)
    if n_positions < n_tokens:
        first = (first & ~_POSITIONS) | _COUNTED | n_positions
    return (_SIGN + (_FIRST | first), *tokens[1:])


def is_media(token: int) -> bool:
    """-1 is no media: it stands for no token at all."""
    return token < -1


def is_first(token: int) -> bool:
    """Whether a chunk begins with this token."""
    return is_media(token) and bool((token - _SIGN) & _FIRST)


def border(tokens: Tokens, length: int) -> int:
    """The largest prefix of at most `length` tokens that ends inside no chunk."""
    while 0 < length < len(tokens) and is_media(int(tokens[length])) and not is_first(int(tokens[length])):
        length -= 1
    return length


def border_after(tokens: Tokens, length: int) -> int:
    """The smallest prefix of at least `length` tokens that ends inside no chunk."""
    while 0 < length < len(tokens) and is_media(int(tokens[length])) and not is_first(int(tokens[length])):
        length += 1
    return length


def next_media(tokens: Tokens, index: int) -> int:
    """Where the next token from `index` on stands for an embedding; the end if none does."""
    found = np.flatnonzero(np.asarray(tokens[index:], np.int64) < -1)
    return index + int(found[0]) if found.size else len(tokens)


def chunk_at(tokens: Tokens, index: int) -> tuple[int, int]:
    """Begin and end of the chunk that the media token at `index` belongs to."""
    start = index
    while not is_first(int(tokens[start])):
        start -= 1
    return start, border_after(tokens, start + 1)


def position(tokens: Tokens, index: int) -> int:
    """The position of the token at `index`, which is inside no chunk; `index` itself but behind chunks of M-RoPE."""
    array = np.asarray(tokens[:index], np.int64)
    # A first token with a count is the only kind with both bits: the largest media tokens, below -1.
    counted = np.flatnonzero((array < -1) & (array >= _SIGN + (_FIRST | _COUNTED)))
    skipped = 0
    for start in counted.tolist():
        end = border_after(tokens, start + 1)
        skipped += end - start - ((int(array[start]) - _SIGN) & _POSITIONS)
    return index - skipped

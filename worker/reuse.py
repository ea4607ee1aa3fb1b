"""Which parts of a finished sequence a prompt contains too, behind its beginning: what `n_cache_reuse` brings back."""

from __future__ import annotations

from collections.abc import Sequence

Chunk = tuple[int, int]
"""Where a run of tokens begins in the finished sequence, and its length. In the prompt the runs stand end to end."""


def reusable_chunks(cached: Sequence[int], prompt: Sequence[int], start: int, least: int) -> list[Chunk]:
    """Runs of at least `least` tokens of `cached` that make up `prompt` from `start` on, in order.

    What stands between them in `cached` is skipped; nothing may stand between them in `prompt`, of which one token is
    left out for its logits.
    """
    chunks: list[Chunk] = []
    at, behind, end = start, start, len(prompt) - 1
    while at < len(cached) and behind < end:
        length = 0
        while at + length < len(cached) and behind + length < end and cached[at + length] == prompt[behind + length]:
            length += 1
        if length >= max(1, least):
            chunks.append((at, length))
            at += length
            behind += length
        else:
            at += 1
    return chunks

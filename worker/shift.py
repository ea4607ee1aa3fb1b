"""Which tokens a full context drops to go on."""

from __future__ import annotations

from collections.abc import Sequence

from worker.media_tokens import border, border_after


def shift_plan(tokens: Sequence[int], n_prompt: int, n_keep: int, n_discard: int) -> tuple[int, int]:
    """The range of positions to drop from a full context.

    The first `n_keep` tokens stay (-1: the whole prompt), and so does the last one; `n_discard` behind them go, half of
    what is left where it is 0. An image is dropped as a whole if any of it is.
    """
    keep = n_prompt if n_keep < 0 else n_keep
    keep = max(0, min(keep, len(tokens) - 4))
    left = len(tokens) - 1 - keep
    discard = min(n_discard or left // 2, left)
    return border(tokens, keep), border_after(tokens, keep + max(1, discard))

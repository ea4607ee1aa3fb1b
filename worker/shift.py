"""Which tokens a full context drops to go on."""

from __future__ import annotations


def shift_plan(n_tokens: int, n_prompt: int, n_keep: int, n_discard: int) -> tuple[int, int]:
    """The range of positions to drop from a context of `n_tokens`.

    The first `n_keep` tokens stay (-1: the whole prompt), and so does the last one; `n_discard` behind them go, half of
    what is left where it is 0.
    """
    keep = n_prompt if n_keep < 0 else n_keep
    keep = max(0, min(keep, n_tokens - 4))
    left = n_tokens - 1 - keep
    discard = min(n_discard or left // 2, left)
    return keep, keep + max(1, discard)

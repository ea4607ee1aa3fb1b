"""Pauses between restarts: at once after a first failure, then doubling with jitter, then a cooldown."""

from __future__ import annotations

import random

from router.scheduling.model import Policy


def pause(failures: int, policy: Policy, source: random.Random) -> float:
    """Seconds to wait after the `failures`-th failure in a row (1 = the first)."""
    if failures <= 1:
        return 0.0
    full = min(policy.backoff_max, policy.backoff_first * 2.0 ** min(failures - 2, 32))
    return full * source.uniform(0.75, 1.0)


def cooled_off(failures: int, policy: Policy) -> bool:
    """Whether so many failures in a row open a cooldown."""
    return 0 < policy.cooldown_failures <= failures


def stable(ready_at: float, now: float, policy: Policy) -> bool:
    """Whether a run that became ready at `ready_at` was long enough to forget the failures before it."""
    return ready_at > 0.0 and now >= ready_at + policy.stable_after

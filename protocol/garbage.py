"""The collector of reference cycles, set for a process that serves for long."""

from __future__ import annotations

import gc

THRESHOLD = 10_000
"""New objects between two looks at the youngest. Python's own 700 are made by a handful of requests."""


def quiet_collection() -> None:
    """To be called once a process is ready: what there is now stays, and is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(THRESHOLD)

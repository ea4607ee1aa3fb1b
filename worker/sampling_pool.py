"""Sampling for all sequences of a step, in several threads where that was measured to be quicker."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

WORTH_MS = 2.0
"""A step whose sampling takes less is not divided: handing jobs over costs something too."""
_WEIGHT = 0.2
_TRIAL_EVERY = 50
"""Steps after which the way that seemed slower is tried again."""


class SamplingPool:
    """Runs `work(job)` for each job of a step; results come in the order of the jobs.

    `work` must be safe to run in several threads at once for different jobs.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._serial = math.nan
        self._parallel = math.nan
        """Running means of milliseconds per job."""
        self._steps = 0

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def run(self, work: Callable[[Job], Result], jobs: list[Job]) -> list[Result]:
        parallel = self._choose(len(jobs))
        began = time.perf_counter()
        results = self._run_parallel(work, jobs) if parallel else [work(job) for job in jobs]
        if len(jobs) > 1 or not parallel:
            self._observe(parallel, 1000 * (time.perf_counter() - began) / max(1, len(jobs)))
        return results

    def _choose(self, n_jobs: int) -> bool:
        if n_jobs < 2 or self._threads < 2 or math.isnan(self._serial) or self._serial * n_jobs < WORTH_MS:
            return False
        self._steps += 1
        if math.isnan(self._parallel):
            return True
        quicker = self._parallel < self._serial
        return not quicker if self._steps % _TRIAL_EVERY == 0 else quicker

    def _observe(self, parallel: bool, ms: float) -> None:
        if parallel:
            self._parallel = ms if math.isnan(self._parallel) else self._parallel + _WEIGHT * (ms - self._parallel)
        else:
            self._serial = ms if math.isnan(self._serial) else self._serial + _WEIGHT * (ms - self._serial)

    def _run_parallel(self, work: Callable[[Job], Result], jobs: list[Job]) -> list[Result]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="sampling")
        return list(self._pool.map(work, jobs))

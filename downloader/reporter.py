"""Tells the router how things stand: one level with all jobs and all unfinished files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from downloader.activejob import ActiveJob
from downloader.store import Store
from protocol.codec import FromChild
from protocol.download import DownloadProgress, Partial

_log = logging.getLogger(__name__)


def contents(jobs: Iterable[ActiveJob]) -> set[tuple[str, str]]:
    """The contents that jobs are about, as (repository, blob)."""
    plans = [job.plan for job in jobs if job.plan is not None]
    return {(plan.repo, file.blob) for plan in plans for file in plan.files}


class Reporter:
    """Sends the level whenever it differs from the one before."""

    def __init__(self, send: Callable[[FromChild], None]) -> None:
        self._send = send
        self._partials: tuple[Partial, ...] = ()
        self._shown = DownloadProgress(0)

    def publish(self, jobs: Iterable[ActiveJob]) -> None:
        """Show these jobs, and the partials that none of them works on."""
        jobs = list(jobs)
        busy = contents(jobs)
        level = DownloadProgress(
            revision=self._shown.revision,
            jobs=tuple(job.progress() for job in jobs),
            partials=tuple(each for each in self._partials if (each.repo, each.blob) not in busy),
        )
        if level == self._shown and self._shown.revision:
            return
        self._shown = msgspec.structs.replace(level, revision=level.revision + 1)
        self._send(self._shown)

    async def look_for_partials(self, store: Store) -> None:
        """Read the cache again."""
        try:
            self._partials = tuple(await asyncio.to_thread(store.partials))
        except OSError as error:
            _log.warning("the cache cannot be read: %s", error)

"""Deletes: models through the hub's library, in a job process; unfinished files by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Set

import msgspec

from downloader import locks
from downloader.activejob import ActiveJob
from downloader.faults import DownloadFault
from downloader.jobwire import JobSpec, Removed
from downloader.runner import job_process
from downloader.store import Store
from protocol.download import DownloadCancelled, RemoveModel
from protocol.errors import ErrorKind

Blobs = Set[tuple[str, str]]
"""Contents as (repository, blob)."""


async def remove(message: RemoveModel, store: Store, spec: JobSpec, busy: Blobs) -> int:
    """Do what a `RemoveModel` asks; the bytes freed. What jobs work on (`busy`) stays. Raises `DownloadFault`."""
    freed = 0
    if message.paths or message.superseded:
        freed = await _remove_files(message, spec)
    return freed + await asyncio.to_thread(_drop_partials, message, store, busy)


async def _remove_files(message: RemoveModel, spec: JobSpec) -> int:
    spec = msgspec.structs.replace(spec, repo=message.repo, paths=message.paths, superseded=message.superseded)
    async with job_process(spec) as process:
        async for line in process.lines():
            if isinstance(line, Removed):
                return line.freed
    raise DownloadFault(ErrorKind.INTERNAL, "a deleting job ended without an answer")


def _drop_partials(message: RemoveModel, store: Store, busy: Blobs) -> int:
    wanted = set(message.partials)
    freed = 0
    for blob in {each.blob for each in store.partials() if each.repo == message.repo}:
        if (blob in wanted or "*" in wanted) and (message.repo, blob) not in busy:
            freed += store.drop_unpublished(message.repo, blob)
            locks.sweep(store.lock(message.repo, blob))
    if freed:
        store.prune(message.repo)
    return freed


def settle_cancelled(job: ActiveJob, store: Store) -> DownloadCancelled:
    """Tidy up behind a job whose process has been killed."""
    plan = job.plan
    if plan is None:
        return DownloadCancelled(job.job)
    kept = freed = 0
    for file in plan.files:
        locks.sweep(store.lock(plan.repo, file.blob))
        if job.purge:
            freed += store.drop_unpublished(plan.repo, file.blob)
        elif not store.has_blob(plan.repo, file):
            kept += store.bytes_of(plan.repo, file)
    if job.purge:
        store.prune(plan.repo)
    return DownloadCancelled(job.job, kept, freed)

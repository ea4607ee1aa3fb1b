"""Talks to a downloader as the router does, without the wire."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from downloader.service import Downloader
from downloader.store import Store
from protocol.codec import FromChild
from protocol.download import (
    CancelDownload,
    ConfigureDownloads,
    DownloadCancelled,
    DownloadChoice,
    DownloadDone,
    DownloadFailed,
    DownloadProgress,
    JobProgress,
    ModelRemoved,
    Plan,
    PlanDownload,
    PlanFile,
    Planned,
    RemoveModel,
    StartDownload,
)
from tests.eventually import eventually_async
from tests.fakes.hub import FakeHub

Message = TypeVar("Message")

SETTINGS = ConfigureDownloads(stall_timeout=8.0, attempts=4, space_margin=0, backoff_first=0.05, backoff_max=0.2)


class Desk:
    """A downloader over `cache`. Methods wait for the answer that they name."""

    def __init__(self, cache: Path, token: str = "", **settings: Any) -> None:
        self.cache = cache
        self.store = Store(cache)
        self.said: list[FromChild] = []
        self.downloader = Downloader(self.said.append, token, os.environ)
        self._next = 0
        self.configure(**settings)

    def configure(self, **settings: Any) -> None:
        self.downloader.handle(msgspec.structs.replace(SETTINGS, cache_dir=str(self.cache), **settings))

    async def close(self) -> None:
        await self.downloader.close()

    def number(self) -> int:
        self._next += 1
        return self._next

    async def plan(self, reference: str, **choice: str) -> Planned | DownloadFailed:
        job = self.number()
        self.downloader.handle(PlanDownload(job, DownloadChoice(reference, **choice)))
        return await self.answer(job, Planned, DownloadFailed)

    async def planned(self, reference: str, **choice: str) -> Planned:
        """A plan that has to succeed."""
        planned = await self.plan(reference, **choice)
        assert isinstance(planned, Planned), planned
        return planned

    async def refused(self, reference: str, **choice: str) -> DownloadFailed:
        """A plan that has to fail."""
        failed = await self.plan(reference, **choice)
        assert isinstance(failed, DownloadFailed), failed
        return failed

    async def start(self, reference: str, **choice: str) -> int:
        """Plan and queue; the job's number."""
        planned = await self.planned(reference, **choice)
        job = self.number()
        self.downloader.handle(StartDownload(job, DownloadChoice(reference, **choice), planned.plan))
        return job

    async def pull(self, reference: str, timeout: float = 20, **choice: str) -> DownloadDone:
        """Fetch to the end, which has to be a good one."""
        done = await self.end(await self.start(reference, **choice), timeout)
        assert isinstance(done, DownloadDone), done
        return done

    async def end(self, job: int, timeout: float = 20) -> DownloadDone | DownloadFailed | DownloadCancelled:
        return await self.answer(job, DownloadDone, DownloadFailed, DownloadCancelled, timeout=timeout)

    async def cancel(self, job: int, purge: bool = False) -> DownloadCancelled:
        self.downloader.handle(CancelDownload(job, purge))
        return await self.answer(job, DownloadCancelled, timeout=1.0)

    async def remove(self, repo: str, *paths: str, superseded: bool = False, partials: tuple[str, ...] = ()) -> int:
        job = self.number()
        self.downloader.handle(RemoveModel(job, repo, paths, superseded, partials))
        return (await self.answer(job, ModelRemoved)).freed

    async def answer(self, job: int, *kinds: type[Message], timeout: float = 20) -> Message:
        """The first message of these kinds about a job."""

        def found() -> Message | None:
            return next((each for each in self.said if isinstance(each, kinds) and each.job == job), None)  # type: ignore[attr-defined]

        await eventually_async(found, timeout, f"job {job} answers; said {self.said[-3:]}")
        message = found()
        assert message is not None
        return message

    def ended(self, job: int) -> DownloadDone | DownloadFailed | DownloadCancelled | None:
        """How a job has ended, if it has."""
        kinds = (DownloadDone, DownloadFailed, DownloadCancelled)
        return next((each for each in self.said if isinstance(each, kinds) and each.job == job), None)

    def store_plan(self, hub: FakeHub, repo: str, path: str) -> Plan:
        """The plan of one file, made without asking."""
        commit = hub.repos[repo].commit_of("main")
        file = hub.repos[repo].commits[commit][path]
        return Plan(repo, repo, "main", commit, (PlanFile(path, len(file.content), file.blob),))

    def levels(self, job: int) -> list[JobProgress]:
        """Every progress report about a job, in order."""
        return [
            progress
            for message in self.said
            if isinstance(message, DownloadProgress)
            for progress in message.jobs
            if progress.job == job
        ]

    async def until_bytes(self, job: int, size: int) -> None:
        """Wait until a job shows at least `size` bytes."""
        await eventually_async(
            lambda: any(level.done >= size for level in self.levels(job)), 20, f"job {job} has {size} bytes"
        )

    def processes(self) -> list[int]:
        """The job processes that run."""
        return [job.process.pid for job in self.downloader._jobs.values() if job.process is not None]

"""Downloads as the rest of the router uses them: ask, join, watch, pause, cancel, delete."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from protocol.codec import FromChild
from protocol.download import (
    CancelDownload,
    ConfigureDownloads,
    DownloadCancelled,
    DownloadChoice,
    DownloadDone,
    DownloadFailed,
    DownloadProgress,
    JobState,
    ModelRemoved,
    Partial,
    Plan,
    PlanDownload,
    Planned,
    RemoveModel,
    StartDownload,
)
from protocol.errors import ErrorKind, WireError
from router.downloads.child import DownloaderProcess
from router.downloads.job import DownloadError, Job, settle
from router.downloads.journal import Journal
from router.downloads.table import JobTable, Publish
from router.supervision.nursery import Nursery
from router.supervision.process import Command

log = logging.getLogger("llamaherd.downloads")


async def _nothing() -> None:
    return None


class Downloads:
    """The job table and its process. Everything runs on the event loop; methods that wait are coroutines.

    The callables are the table's.
    """

    def __init__(
        self,
        nursery: Nursery,
        settings: ConfigureDownloads,
        journal: Journal,
        *,
        token: str = "",
        hub: str = "https://huggingface.co",
        publish: Publish = lambda model, event, data: None,
        ended: Callable[[Job], None] = lambda job: None,
        command: Command | None = None,
    ) -> None:
        self._settings = settings
        self.changed: Callable[[], Awaitable[None]] = _nothing
        """Awaited when the cache holds other models than before, and before anybody is told: who then asks finds it."""
        self._process = DownloaderProcess(
            nursery, token, self._connected, self._received, self._lost, self._failed, command
        )
        self._table = JobTable(journal, hub, publish, ended)
        self._removals: dict[int, tuple[RemoveModel, asyncio.Future[int]]] = {}
        self._revision = 0
        self._partials: tuple[Partial, ...] = ()
        self._finishing: set[asyncio.Task[None]] = set()

    # Life

    def open(self) -> None:
        """Read the journal; what it holds goes on at once."""
        self._table.open()
        if self._table.live():
            self._process.want()

    async def close(self) -> None:
        """Keep the table for the next start. The process itself ends with the nursery's other children."""
        self._process.close()
        await asyncio.gather(*self._finishing)
        await self._table.close()

    def configure(self, settings: ConfigureDownloads) -> None:
        """Use other settings from now on."""
        self._settings = settings
        self._process.send(settings)

    @property
    def pid(self) -> int:
        """The downloader's process id, 0 while there is none."""
        return self._process.pid

    # What is asked

    async def pull(self, choice: DownloadChoice) -> Job:
        """Have a model fetched; returns once it is queued. The same files are fetched once, however many ask.

        Raises `DownloadError` where the reference is bad, the hub says no, or the disk is too small.
        """
        job = self._table.alike(choice)
        if job is None:
            job = self._begin(choice)
        else:
            job.callers += 1
            if job.state is JobState.PAUSED:
                self.resume(job)
        await self._admission(job)
        return job.twin or job

    async def plan(self, choice: DownloadChoice) -> Job:
        """What a pull would fetch: the job that is returned has a plan and its space, and is not queued."""
        job = self._begin(choice, dry=True)
        await self._admission(job)
        return job

    async def fetch(self, choice: DownloadChoice, note: Callable[[float], None]) -> str:
        """Pull and wait for the end; the path of the first file. `note` gets the share that is there, 0..1.

        Raises `DownloadError`, also when somebody cancels it. Whoever stops waiting does not stop the download.
        """
        job = await self.pull(choice)

        def follow(job: Job) -> None:
            if job.progress is not None and job.progress.total:
                note(job.progress.done / job.progress.total)

        job.followers.append(follow)
        try:
            await asyncio.shield(job.finished)
        finally:
            job.followers.remove(follow)
        if job.state is JobState.DONE:
            return job.path
        error = job.error or WireError(ErrorKind.CANCELLED, f"the download of {job.model} was cancelled")
        raise DownloadError(error, job.retryable)

    async def cancel(self, job: Job, purge: bool = False) -> None:
        """End a job, unless it has ended by itself. `purge` leaves nothing on the disk; `kept` and `freed` tell.

        Raises `DownloadError` when the purge fails.
        """
        if job.live and not job.path and self._process.send(CancelDownload(job.number, purge)):
            job.stopping = JobState.CANCELLED
        elif not job.over and not job.path:
            self._table.finish(job, JobState.CANCELLED)
            if purge and job.plan is not None:
                job.freed = await self._drop_partials(job.plan)
        if not job.over:
            await asyncio.shield(job.finished)

    async def discard(self, job: Job, purge: bool = False) -> None:
        """Take an ended job out of the table. `purge` drops what it left on the disk. Raises `DownloadError`."""
        if purge and job.plan is not None and job.state is not JobState.DONE:
            job.freed = await self._drop_partials(job.plan)
            job.kept = 0
        self._table.forget(job)

    def pause(self, job: Job) -> None:
        """Stop a job for now; what it fetched stays, also across a restart of the gateway. Raises `DownloadError`."""
        if not job.live or job.path:
            raise DownloadError(WireError(ErrorKind.CONFLICT, f"the download of {job.model} is not running"))
        if self._process.send(CancelDownload(job.number)):
            job.stopping = JobState.PAUSED
        else:
            self._table.move(job, JobState.PAUSED)

    def resume(self, job: Job) -> None:
        """Let a paused job go on. Raises `DownloadError`."""
        if job.state is not JobState.PAUSED:
            raise DownloadError(WireError(ErrorKind.CONFLICT, f"the download of {job.model} is not paused"))
        self._table.queue(job)
        self._process.want()
        self._tell(job)

    async def remove(self, request: RemoveModel) -> int:
        """Delete from the cache; says how many bytes were freed. The request's job number is chosen here.

        Raises `DownloadError`.
        """
        request = msgspec.structs.replace(request, job=self._table.number())
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._removals[request.job] = (request, answer)
        self._process.want()
        self._process.send(request)
        freed = await asyncio.shield(answer)
        if request.paths or request.superseded:
            await self.changed()
        return freed

    # What is known

    def jobs(self) -> list[Job]:
        """Every job in the order of asking; ended ones for a while."""
        return self._table.all()

    def active(self) -> list[Job]:
        """The jobs that have not ended, paused ones too."""
        return self._table.active()

    def partials(self) -> tuple[Partial, ...]:
        """Unfinished files in the cache that no job works on, as far as the downloader has told."""
        return self._partials

    def job(self, number: int) -> Job | None:
        return self._table.get(number)

    def find(self, name: str) -> Job | None:
        """The active job that a client means by a model id or a reference."""
        return self._table.find(name)

    # Inside

    async def _drop_partials(self, plan: Plan) -> int:
        return await self.remove(RemoveModel(0, plan.repo, partials=tuple(file.blob for file in plan.files)))

    def _begin(self, choice: DownloadChoice, dry: bool = False) -> Job:
        job = self._table.begin(choice, dry)
        self._process.want()
        self._tell(job)
        return job

    @staticmethod
    async def _admission(job: Job) -> None:
        await asyncio.shield(job.admitted)
        if job.error is not None:
            raise DownloadError(job.error, job.retryable)

    def _tell(self, job: Job) -> None:
        """Give the downloader what it has to do for a job; if it is not there, it hears of it when it connects."""
        if job.plan is None or job.dry:
            self._process.send(PlanDownload(job.number, job.choice))
        else:
            self._process.send(StartDownload(job.number, job.choice, job.plan))
            settle(job.admitted)

    def _connected(self) -> None:
        self._revision = 0
        self._process.send(self._settings)
        for job in self._table.live():
            self._tell(job)
        for request, _ in self._removals.values():
            self._process.send(request)

    def _lost(self) -> None:
        """The process is gone, and its jobs with it: they are queued again, or at rest if that was wanted."""
        for job in self._table.live():
            if job.stopping is not None:
                self._stopped(job)
            else:
                self._table.queue(job)

    def _failed(self, words: str) -> None:
        error = WireError(ErrorKind.UNAVAILABLE, f"the downloader dies again and again: {words}")
        for job in self._table.live():
            self._table.fail(job, error, retryable=True)
        for _, answer in self._removals.values():
            answer.set_exception(DownloadError(error))
        self._removals.clear()

    # What the downloader says

    def _received(self, message: FromChild) -> None:
        if isinstance(message, DownloadProgress):
            self._take_level(message)
        elif isinstance(message, ModelRemoved | DownloadFailed) and message.job in self._removals:
            _, answer = self._removals.pop(message.job)
            if isinstance(message, ModelRemoved):
                answer.set_result(message.freed)
            else:
                answer.set_exception(DownloadError(message.error))
        elif isinstance(message, Planned | DownloadDone | DownloadCancelled | DownloadFailed):
            job = self._table.get(message.job)
            if job is not None and job.live:  # else it was cancelled meanwhile, or goes on as another one
                self._take(job, message)
        else:
            log.warning("the downloader sent %s", type(message).__name__)

    def _take(self, job: Job, message: Planned | DownloadDone | DownloadCancelled | DownloadFailed) -> None:
        if isinstance(message, Planned):
            self._take_plan(job, message)
        elif isinstance(message, DownloadDone):
            job.path = message.path
            task = asyncio.get_running_loop().create_task(self._announce_done(job))
            self._finishing.add(task)
            task.add_done_callback(self._finishing.discard)
        elif isinstance(message, DownloadCancelled):
            job.kept, job.freed = message.kept, message.freed
            self._stopped(job)
        else:
            self._table.fail(job, message.error, message.retryable)

    def _take_plan(self, job: Job, planned: Planned) -> None:
        first = not job.admitted.done()
        job.plan = planned.plan
        job.space = planned.space
        if job.dry:
            self._table.forget(job)
            settle(job.admitted)
        elif not first:
            self._table.save()  # the files changed on the hub; the downloader goes on with the new ones
        elif (twin := self._table.twin(job, planned.plan)) is not None:
            job.twin = twin
            twin.callers += job.callers
            self._table.forget(job)
            settle(job.admitted)
        else:
            self._admit(job, planned)

    def _admit(self, job: Job, planned: Planned) -> None:
        self._table.move(job, JobState.QUEUED)
        if planned.space.fits:
            self._tell(job)
            self._table.announce(job, "model_status", {"status": "downloading"})
        else:
            # The downloader knows the numbers best: its refusal is the answer, so nobody is promised anything yet.
            self._process.send(StartDownload(job.number, job.choice, planned.plan))

    def _take_level(self, level: DownloadProgress) -> None:
        if level.revision <= self._revision:
            return
        self._revision = level.revision
        self._partials = level.partials
        for progress in level.jobs:
            job = self._table.get(progress.job)
            if job is not None and job.live and not job.dry and job.stopping is None and not job.path:
                self._table.report(job, progress)

    async def _announce_done(self, job: Job) -> None:
        try:
            await self.changed()
        finally:
            if job.live:
                self._table.finish(job, JobState.DONE)

    def _stopped(self, job: Job) -> None:
        if job.stopping is JobState.PAUSED:
            job.stopping = None
            self._table.move(job, JobState.PAUSED)
        else:
            self._table.finish(job, JobState.CANCELLED)

"""The downloader: takes the router's messages, runs the queue, and reports. Everything runs on one event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path

import msgspec

from downloader import locks, space
from downloader.activejob import ActiveJob
from downloader.deletion import remove, settle_cancelled
from downloader.faults import DownloadFault, transient
from downloader.jobwire import Fetched, FilePhase, JobMode, JobSpec
from downloader.planning import make_plan
from downloader.queue import DownloadQueue
from downloader.rate import shares
from downloader.reporter import Reporter, contents
from downloader.retry import backoff
from downloader.runner import job_process
from downloader.store import Store, default_cache_dir
from protocol.codec import FromChild
from protocol.download import (
    CancelDownload,
    ConfigureDownloads,
    DownloadCancelled,
    DownloadChoice,
    DownloadDone,
    DownloadFailed,
    JobState,
    ModelRemoved,
    Plan,
    PlanDownload,
    Planned,
    RemoveModel,
    Space,
    StartDownload,
    ToDownloader,
)
from protocol.errors import ErrorKind, ExitCode, WireError

TICK = 0.1
"""Seconds between two looks at the disk, and between two reports of numbers."""

_RATES_EVERY = 10
"""Ticks between two ways of sharing out the rate limit."""

_REPLANS = 3

_log = logging.getLogger(__name__)


class Downloader:
    """Runs download jobs. `send` queues a message to the router and does not block."""

    def __init__(self, send: Callable[[FromChild], None], token: str, environment: Mapping[str, str]) -> None:
        self._send = send
        self._token = token
        self._environment = environment
        self._settings = ConfigureDownloads()
        self._store = Store(default_cache_dir(environment))
        self._jobs: dict[int, ActiveJob] = {}
        self._queue = DownloadQueue()
        self._reporter = Reporter(send)
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, message: ToDownloader) -> None:
        """Take one message of the router."""
        if isinstance(message, ConfigureDownloads):
            self._configure(message)
        elif isinstance(message, PlanDownload):
            self._launch(message.job, message.choice, None)
        elif isinstance(message, StartDownload):
            self._launch(message.job, message.choice, message.plan)
        elif isinstance(message, CancelDownload):
            self._cancel(message)
        else:
            self._spawn(self._remove(message))

    async def close(self) -> None:
        """Kill every job; what they fetched stays for the next time."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()

    # Messages

    def _configure(self, settings: ConfigureDownloads) -> None:
        self._settings = settings
        cache_dir = Path(settings.cache_dir) if settings.cache_dir else default_cache_dir(self._environment)
        self._store = Store(cache_dir)
        swept = locks.sweep_stale(cache_dir)
        if swept:
            _log.info("removed %d stale lock files", swept)
        self._share_rates()
        self._start_jobs()
        self._spawn(self._look_for_partials())

    def _launch(self, number: int, choice: DownloadChoice, plan: Plan | None) -> None:
        if number in self._jobs:
            _log.warning("job %d is known already", number)
            return
        job = ActiveJob(number, choice, time.monotonic())
        self._jobs[number] = job
        job.task = self._spawn(self._run(job, plan))

    def _cancel(self, message: CancelDownload) -> None:
        job = self._jobs.get(message.job)
        if job is None or job.task is None:
            self._send(DownloadCancelled(message.job))
            return
        job.purge = job.purge or message.purge
        if not job.cancelled:
            job.cancelled = True
            # Behind its first step: a task that has not begun would end without a word.
            asyncio.get_running_loop().call_soon(job.task.cancel)

    async def _remove(self, message: RemoveModel) -> None:
        try:
            freed = await remove(message, self._store, self._spec(JobMode.REMOVE), contents(self._jobs.values()))
        except DownloadFault as fault:
            self._send(DownloadFailed(message.job, fault.wire, fault.retryable))
        else:
            self._send(ModelRemoved(message.job, freed))
        await self._look_for_partials()

    # The life of a job

    async def _run(self, job: ActiveJob, plan: Plan | None) -> None:
        try:
            if plan is None:
                await self._plan(job)
            else:
                await self._fetch(job, plan)
        except DownloadFault as fault:
            self._send(DownloadFailed(job.job, fault.wire, fault.retryable))
        except OSError as error:
            words = f"the cache {self._store.root} cannot be used: {error}"
            self._send(DownloadFailed(job.job, WireError(ErrorKind.INTERNAL, words), retryable=True))
        except asyncio.CancelledError:
            if not job.cancelled:
                raise  # the whole downloader ends
            self._send(await asyncio.to_thread(settle_cancelled, job, self._store))
        finally:
            self._queue.remove(job.job)
            del self._jobs[job.job]
            self._start_jobs()
        self._publish()
        await self._look_for_partials()

    async def _plan(self, job: ActiveJob) -> None:
        self._publish()
        plan = await self._make_plan(job)
        self._send(Planned(job.job, plan, self._space(job.job, plan)))

    async def _make_plan(self, job: ActiveJob) -> Plan:
        spec = msgspec.structs.replace(self._spec(JobMode.PLAN), choice=job.choice)
        return await make_plan(job.choice, self._store, spec, self._settings.offline)

    async def _fetch(self, job: ActiveJob, plan: Plan) -> None:
        if plan.cached:
            self._send(DownloadDone(job.job, str(self._cached_path(plan)), plan.size))
            return
        self._enqueue(job, plan)
        self._publish()
        replans = 0
        while True:
            self._start_jobs()
            await job.turn.wait()
            try:
                path = await self._attempt(job)
            except DownloadFault as fault:
                if fault.changed and replans < _REPLANS:
                    replans += 1
                    await self._replan(job)
                elif not self._may_try_again(job, fault):
                    raise
            else:
                self._publish()  # the last bytes, too, are seen by who follows
                self._send(DownloadDone(job.job, path, job.plan.size if job.plan else 0))
                return

    def _cached_path(self, plan: Plan) -> Path:
        if not self._store.published(plan):
            raise DownloadFault(ErrorKind.UNAVAILABLE, f"{plan.model} is not in the cache any more", retryable=True)
        return self._store.pointer(plan.repo, plan.commit, plan.files[0].path)

    def _enqueue(self, job: ActiveJob, plan: Plan) -> None:
        needed = self._space(job.job, plan)
        if not needed.fits:
            raise space.no_space(needed, self._store.root)
        job.adopt(plan, self._store)
        job.state = JobState.QUEUED
        job.turn.clear()
        self._queue.add(job.job, plan)
        self._queue.release(job.job)

    async def _attempt(self, job: ActiveJob) -> str:
        """Let one process work on the job. Raises the `DownloadFault` with which it ended."""
        plan = job.plan
        if plan is None:
            raise DownloadFault(ErrorKind.INTERNAL, "a job without a plan was started")
        needed = self._space(job.job, plan)
        if not needed.fits:
            raise space.no_space(needed, self._store.root)
        spec = msgspec.structs.replace(self._spec(JobMode.FETCH), plan=plan)
        path = ""
        try:
            async with job_process(spec) as process:
                job.begin(process, self._settings.stall_timeout, time.monotonic())
                self._share_rates()
                self._tick_soon()
                self._publish()
                async for line in process.lines():
                    if isinstance(line, FilePhase):
                        before = job.state
                        job.enter(line.index, line.phase, time.monotonic())
                        if job.state is not before:
                            self._publish()
                    elif isinstance(line, Fetched):
                        path = line.path
        except DownloadFault as fault:
            if job.stall:
                raise transient(job.stall) from fault
            raise
        finally:
            job.process = None
            job.measure(self._store, time.monotonic())
            for file in plan.files:
                locks.sweep(self._store.lock(plan.repo, file.blob))
            self._share_rates()
        if not path:
            raise transient("the job process ended before it was done")
        return path

    async def _replan(self, job: ActiveJob) -> None:
        _log.info("job %d: the plan has changed on the hub", job.job)
        self._queue.hold(job.job)
        job.state = JobState.PLANNING
        self._publish()
        plan = await self._make_plan(job)
        self._enqueue(job, plan)
        self._send(Planned(job.job, plan, self._space(job.job, plan)))
        self._publish()

    def _may_try_again(self, job: ActiveJob, fault: DownloadFault) -> bool:
        """Put the job off until its next attempt is due; False when there is none."""
        job.retry = job.retry.failed(job.on_disk)
        if not fault.automatic or job.retry.failures >= self._settings.attempts:
            return False
        pause = backoff(
            job.retry.failures,
            self._settings.backoff_first,
            self._settings.backoff_max,
            random.random(),
            fault.retry_after,
        )
        _log.info("job %d: %s; next attempt in %.1f s", job.job, fault.message, pause)
        job.state = JobState.WAITING
        job.reason = fault.message
        job.attempt += 1
        # The place in the queue stays, the right to run does not: others go on meanwhile.
        self._queue.hold(job.job)
        job.turn.clear()
        asyncio.get_running_loop().call_later(pause, self._release, job)
        self._publish()
        return True

    def _release(self, job: ActiveJob) -> None:
        if self._jobs.get(job.job) is job and job.state is JobState.WAITING:
            job.state = JobState.QUEUED
            self._queue.release(job.job)
            self._start_jobs()
            self._publish()

    # The queue and the numbers

    def _start_jobs(self) -> None:
        for number in self._queue.start(self._settings.parallel):
            self._jobs[number].turn.set()

    def _space(self, number: int, plan: Plan) -> Space:
        return space.space_for(plan, self._queue.claims(number), self._store, self._settings.space_margin)

    def _spec(self, mode: JobMode) -> JobSpec:
        return JobSpec(mode, str(self._store.root), os.getpid(), self._token)

    def _share_rates(self) -> None:
        running = {job.job: job for job in self._jobs.values() if job.process is not None}
        for number, rate in shares(self._settings.rate_limit, {n: job.rate for n, job in running.items()}).items():
            process = running[number].process
            if process is not None:
                process.set_rate(rate)

    def _tick_soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._ticks += 1
        now = time.monotonic()
        for job in self._jobs.values():
            if job.process is not None and job.measure(self._store, now):
                job.stall = f"no byte came for {job.patience:g} s"
                job.process.kill()
        if self._settings.rate_limit and self._ticks % _RATES_EVERY == 0:
            self._share_rates()
        self._publish()
        if any(job.process is not None for job in self._jobs.values()):
            self._tick_soon()

    def _publish(self) -> None:
        self._reporter.publish(self._jobs.values())

    async def _look_for_partials(self) -> None:
        await self._reporter.look_for_partials(self._store)
        self._publish()

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # A fault of ours. The router sees the process end, starts a new one and rebuilds the queue.
            _log.critical("the downloader failed", exc_info=error)
            os._exit(ExitCode.CRASH)

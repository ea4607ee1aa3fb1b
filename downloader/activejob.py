"""What the downloader knows of one job that has not ended."""

from __future__ import annotations

import asyncio

from downloader.jobwire import Phase
from downloader.retry import Retry
from downloader.runner import JobProcess
from downloader.speed import Speedometer
from downloader.store import Store
from downloader.watchdog import Watchdog
from protocol.download import DownloadChoice, FileProgress, JobProgress, JobState, Plan

START_TIMEOUT = 60.0
"""Seconds at least that a process has for its first report: where everything computes, its imports take a while."""


class ActiveJob:
    """One job: its plan, its process while it has one, and the numbers read from the disk."""

    def __init__(self, job: int, choice: DownloadChoice, now: float) -> None:
        self.job = job
        self.choice = choice
        self.plan: Plan | None = None
        self.state = JobState.PLANNING
        self.reason = ""
        self.attempt = 1
        self.retry = Retry()
        self.purge = False
        self.cancelled = False
        self.stall = ""
        """Why the watchdog killed the process, "" when it did not."""
        self.turn = asyncio.Event()
        """Set when the queue lets the job start."""
        self.process: JobProcess | None = None
        self.task: asyncio.Task[None] | None = None
        self._stall_timeout = 0.0
        self._watchdog = Watchdog(0.0, now)
        self._speed = Speedometer()
        self._phases: dict[int, Phase] = {}
        self._on_disk: list[int] = []
        self._shown: list[int] = []

    def adopt(self, plan: Plan, store: Store) -> None:
        """Take a plan, the first one or one that replaces another."""
        self.plan = plan
        self._on_disk = [store.bytes_of(plan.repo, file) for file in plan.files]
        self._shown = list(self._on_disk)

    def begin(self, process: JobProcess, stall_timeout: float, now: float) -> None:
        """A process works on the job from now on."""
        self.process = process
        self.state = JobState.DOWNLOADING
        self.reason = ""
        self.stall = ""
        self._stall_timeout = stall_timeout
        self._watchdog = Watchdog(max(stall_timeout, START_TIMEOUT), now)
        self._speed = Speedometer()
        self._phases = {}

    def enter(self, index: int, phase: Phase, now: float) -> None:
        """The process says what a file waits for."""
        if not self._phases:
            self._watchdog = Watchdog(self._stall_timeout, now)
        self._phases[index] = phase
        verifying = Phase.VERIFYING in self._phases.values()
        self.state = JobState.VERIFYING if verifying else JobState.DOWNLOADING
        locked = Phase.LOCKED in self._phases.values()
        self.reason = "another process is fetching the same file" if locked else ""

    def measure(self, store: Store, now: float) -> bool:
        """Read the bytes on disk; True when bytes are due and none came for too long.

        Disk is the only witness: what a job claims is never shown. What is shown does not fall, also when a file is
        begun anew because it changed or was damaged.
        """
        if self.plan is None:
            return False
        self._on_disk = [store.bytes_of(self.plan.repo, file) for file in self.plan.files]
        self._shown = [max(pair) for pair in zip(self._shown, self._on_disk, strict=True)]
        self._speed.saw(self.on_disk, now)
        phases = self._phases.values()
        idle = Phase.VERIFYING in phases or Phase.LOCKED in phases
        return self._watchdog.saw(self.on_disk, now, expected=not idle)

    @property
    def patience(self) -> float:
        """Seconds without a byte that the watchdog allows now."""
        return self._watchdog.limit

    @property
    def on_disk(self) -> int:
        """Bytes of the plan's files on disk."""
        return sum(self._on_disk)

    @property
    def rate(self) -> float:
        """Bytes per second now; negative while nobody can say."""
        return self._speed.rate if self.process is not None else -1.0

    def progress(self) -> JobProgress:
        files: tuple[FileProgress, ...] = ()
        if self.plan is not None:
            files = tuple(
                FileProgress(file.path, done, file.size, self._phases.get(index) is Phase.DONE)
                for index, (file, done) in enumerate(zip(self.plan.files, self._shown, strict=True))
            )
        left = sum(file.total - file.done for file in files)
        running = self.state is JobState.DOWNLOADING
        return JobProgress(
            job=self.job,
            state=self.state,
            files=files,
            rate=round(self._speed.rate, 1) if running else 0.0,
            eta=round(self._speed.eta(left), 1) if running else -1.0,
            attempt=self.attempt,
            reason=self.reason,
        )

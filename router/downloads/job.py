"""One download as the router knows it, and the moves that its state may make."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct

from protocol.download import (
    TERMINAL,
    DownloadChoice,
    FileProgress,
    JobProgress,
    JobState,
    Plan,
    PlanFile,
    Space,
)
from protocol.errors import WireError

_LIVE = frozenset({JobState.PLANNING, JobState.QUEUED, JobState.DOWNLOADING, JobState.VERIFYING, JobState.WAITING})

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    **{state: _LIVE | TERMINAL | {JobState.PAUSED} for state in _LIVE},
    JobState.PAUSED: frozenset({JobState.PLANNING, JobState.QUEUED, JobState.CANCELLED}),
    **{state: frozenset() for state in TERMINAL},
}
"""From each state to those that may follow. Live states follow one another in any order: a fault leads back."""


class IllegalMove(Exception):
    """A state that cannot follow another: a fault of ours. Nothing was changed."""


class DownloadError(Exception):
    """A download that failed, with the words for its clients."""

    def __init__(self, error: WireError, retryable: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.retryable = retryable


class JobRecord(Struct, frozen=True, omit_defaults=True):
    """What the journal keeps of a job. Times are Unix seconds, 0 = not yet."""

    number: int
    choice: DownloadChoice
    state: JobState
    plan: Plan | None = None
    error: WireError | None = None
    retryable: bool = False
    created: float = 0.0
    ended: float = 0.0
    path: str = ""


class Job:
    """A download. `admitted` becomes done when it is queued or refused, `finished` when it has ended."""

    def __init__(self, record: JobRecord) -> None:
        loop = asyncio.get_running_loop()
        self.number = record.number
        self.choice = record.choice
        self.state = record.state
        self.plan = record.plan
        self.space: Space | None = None
        self.error = record.error
        self.retryable = record.retryable
        self.created = record.created
        self.ended = record.ended
        self.path = record.path
        self.progress: JobProgress | None = None
        self.callers = 1
        self.dry = False
        """Only the plan is wanted."""
        self.stopping: JobState | None = None
        """What it becomes once the downloader has let go of it: cancelled or paused; None while it is to go on."""
        self.twin: Job | None = None
        """The job that fetches the same files and goes on in this one's place."""
        self.followers: list[Callable[[Job], None]] = []
        """Called with each report of progress."""
        self.kept = 0
        self.freed = 0
        """Bytes that a cancelled job left on disk, and that it gave back."""
        self.admitted: asyncio.Future[None] = loop.create_future()
        self.finished: asyncio.Future[None] = loop.create_future()

    @property
    def live(self) -> bool:
        """Whether the downloader has something to do for it."""
        return self.state in _LIVE

    @property
    def over(self) -> bool:
        return self.state in TERMINAL

    @property
    def model(self) -> str:
        """The id under which it will be listed; until that is known, the reference."""
        return self.plan.model if self.plan is not None else self.choice.reference

    @property
    def files(self) -> tuple[FileProgress, ...]:
        if self.progress is not None and self.progress.files:
            return self.progress.files
        whole = self.state is JobState.DONE
        planned: tuple[PlanFile, ...] = self.plan.files if self.plan is not None else ()
        return tuple(FileProgress(file.path, file.size if whole else 0, file.size, whole) for file in planned)

    def move(self, state: JobState) -> bool:
        """Enter a state; False if it is the present one. Raises `IllegalMove`."""
        if state is self.state:
            return False
        if state not in TRANSITIONS[self.state]:
            raise IllegalMove(f"job {self.number} cannot go from {self.state} to {state}")
        self.state = state
        return True

    def record(self) -> JobRecord:
        return JobRecord(
            self.number,
            self.choice,
            self.state,
            self.plan,
            self.error,
            self.retryable,
            self.created,
            self.ended,
            self.path,
        )


def same_plan(one: Plan, other: Plan) -> bool:
    """Whether two plans fetch the same files, so that one job serves both."""
    return (one.repo, one.commit, _paths(one)) == (other.repo, other.commit, _paths(other))


def _paths(plan: Plan) -> frozenset[str]:
    return frozenset(file.path for file in plan.files)


def settle(future: asyncio.Future[None]) -> None:
    """Let those go on who wait for it; harmless when repeated."""
    if not future.done():
        future.set_result(None)

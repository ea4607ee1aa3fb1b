"""The table of downloads: found, joined, moved from state to state, written down, and announced."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import msgspec

from protocol.download import DownloadChoice, JobProgress, JobState, Plan
from protocol.errors import WireError
from router.downloads.job import Job, JobRecord, same_plan, settle
from router.downloads.journal import Journal, Page

ENDED_KEPT = 50
"""Ended jobs that stay in the table, and in the journal, for people to look at."""

Publish = Callable[[str, str, bytes], None]
"""Tells the event stream: model id, event name, data as JSON (may be empty)."""

_EVENTS = {
    JobState.DONE: "download_finished",
    JobState.FAILED: "download_failed",
    JobState.CANCELLED: "download_cancelled",
}

log = logging.getLogger("llamaherd.downloads")


class JobTable:
    """Every job that has not been forgotten, in the order of asking.

    `publish` carries llama-server's download events; `ended` is called with each job that ended; `hub` is the address
    that file addresses in events begin with.
    """

    def __init__(self, journal: Journal, hub: str, publish: Publish, ended: Callable[[Job], None]) -> None:
        self._journal = journal
        self._hub = hub.rstrip("/")
        self._publish = publish
        self._ended = ended
        self._jobs: dict[int, Job] = {}
        self._next = 1

    def open(self) -> None:
        """Read what an earlier gateway wrote down. What was running then is queued."""
        page = self._journal.read()
        self._next = page.next
        for record in page.jobs:
            job = Job(record)
            if job.live:
                self.queue(job)
            self._jobs[record.number] = job

    async def close(self) -> None:
        """Return when everything is on disk."""
        self.save()
        await self._journal.close()

    # Looking

    def all(self) -> list[Job]:
        return list(self._jobs.values())

    def get(self, number: int) -> Job | None:
        return self._jobs.get(number)

    def active(self) -> list[Job]:
        """The jobs that have not ended, paused ones too, and that are more than a plan."""
        return [job for job in self._jobs.values() if not job.over and not job.dry]

    def live(self) -> list[Job]:
        """The jobs that the downloader has something to do for."""
        return [job for job in self._jobs.values() if job.live]

    def find(self, name: str) -> Job | None:
        """The active job that a client means by a model id or a reference, newest first."""
        wanted = name.strip().lower()
        for job in reversed(self.active()):
            if wanted in (job.model.lower(), job.choice.reference.lower()):
                return job
        return None

    def alike(self, choice: DownloadChoice) -> Job | None:
        """The active job that was asked for in the same words."""
        return next((job for job in self.active() if job.choice == choice), None)

    def twin(self, job: Job, plan: Plan) -> Job | None:
        """The active job, other than this one, that fetches the same files."""
        for other in self.active():
            if other is not job and other.plan is not None and same_plan(other.plan, plan):
                return other
        return None

    # Changing

    def number(self) -> int:
        """A job number that was never used."""
        self._next += 1
        return self._next - 1

    def begin(self, choice: DownloadChoice, dry: bool) -> Job:
        """A new job, which is to be planned."""
        job = Job(JobRecord(self.number(), choice, JobState.PLANNING, created=time.time()))
        job.dry = dry
        self._jobs[job.number] = job
        self.save()
        return job

    def move(self, job: Job, state: JobState) -> None:
        """Enter a state that is no end. Raises `IllegalMove`."""
        if job.move(state):
            self.save()

    def queue(self, job: Job) -> None:
        """Back to the beginning: queued, or to be planned if there is no plan."""
        self.move(job, JobState.PLANNING if job.plan is None else JobState.QUEUED)

    def finish(self, job: Job, state: JobState) -> None:
        """End a job, and tell everybody."""
        job.stopping = None
        job.ended = time.time()
        self.move(job, state)
        settle(job.admitted)
        settle(job.finished)
        log.info("download of %s: %s%s", job.model, state, f" ({job.error.message})" if job.error else "")
        data = {"error": {"type": job.error.kind, "message": job.error.message}} if job.error is not None else {}
        self.announce(job, _EVENTS[state], data)
        self._ended(job)
        over = [each for each in self._jobs.values() if each.over]
        for old in over[: max(0, len(over) - ENDED_KEPT)]:
            self.forget(old)

    def fail(self, job: Job, error: WireError, retryable: bool) -> None:
        """End a job with an error. One that nobody was promised is forgotten: the answer to its caller says why."""
        job.error = error
        job.retryable = retryable
        if job.admitted.done():
            self.finish(job, JobState.FAILED)
        else:
            self.forget(job)
            job.move(JobState.FAILED)
            settle(job.admitted)
            settle(job.finished)

    def forget(self, job: Job) -> None:
        self._jobs.pop(job.number, None)
        self.save()

    def report(self, job: Job, progress: JobProgress) -> None:
        """Take a report of progress."""
        moved = job.progress is None or progress.files != job.progress.files
        job.progress = progress
        if progress.state is not JobState.PLANNING:
            self.move(job, progress.state)
            settle(job.admitted)
        if moved and progress.files:
            self.announce(job, "download_progress", {"progress": self._by_address(job)})
        for follow in list(job.followers):
            follow(job)

    def announce(self, job: Job, event: str, data: Mapping[str, object]) -> None:
        self._publish(job.model, event, msgspec.json.encode(data) if data else b"")

    def save(self) -> None:
        """Write the table down, soon."""
        jobs = tuple(job.record() for job in self._jobs.values() if not job.dry)
        self._journal.keep(Page(self._next, jobs))

    def _by_address(self, job: Job) -> dict[str, object]:
        if job.plan is None:
            return {}
        base = f"{self._hub}/{job.plan.repo}/resolve/{job.plan.revision}"
        return {f"{base}/{file.path}": {"done": file.done, "total": file.total} for file in job.files}

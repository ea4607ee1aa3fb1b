"""Which jobs run: pure. First come, first served, except that two jobs never write the same content."""

from __future__ import annotations

from protocol.download import Plan


class DownloadQueue:
    """The jobs that have a plan and have not ended, in the order of their arrival."""

    def __init__(self) -> None:
        self._plans: dict[int, Plan] = {}
        self._running: set[int] = set()
        self._held: set[int] = set()

    def __contains__(self, job: int) -> bool:
        return job in self._plans

    def add(self, job: int, plan: Plan) -> None:
        """Queue a job, or give one that is queued a new plan at its old place."""
        self._plans[job] = plan

    def remove(self, job: int) -> None:
        self._plans.pop(job, None)
        self._running.discard(job)
        self._held.discard(job)

    def start(self, parallel: int) -> list[int]:
        """Take the jobs that may start now, with at most `parallel` running in all; they count as running from now.

        A job that shares content with a running one is passed over until that one has ended: by then it is there.
        """
        started = []
        for job, plan in self._plans.items():
            if len(self._running) >= parallel:
                break
            if job in self._running or job in self._held or self._blobs(plan) & self._written():
                continue
            self._running.add(job)
            started.append(job)
        return started

    def hold(self, job: int) -> None:
        """The job keeps its place, and does not run until `release`."""
        self._running.discard(job)
        self._held.add(job)

    def release(self, job: int) -> None:
        self._held.discard(job)

    def claims(self, job: int) -> list[Plan]:
        """The plans whose missing bytes are spoken for: of the jobs before this one, and of those that run."""
        claims = []
        ahead = True
        for other, plan in self._plans.items():
            if other == job:
                ahead = False
            elif ahead or other in self._running:
                claims.append(plan)
        return claims

    def _written(self) -> set[tuple[str, str]]:
        return {blob for job in self._running for blob in self._blobs(self._plans[job])}

    @staticmethod
    def _blobs(plan: Plan) -> set[tuple[str, str]]:
        return {(plan.repo, file.blob) for file in plan.files}

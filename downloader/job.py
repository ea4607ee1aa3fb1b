"""A job process: plans, fetches or deletes for one request, and ends. Started by `downloader.jobstart`."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from downloader.faults import DownloadFault, invalid
from downloader.hub import Hub
from downloader.jobwire import (
    Fetched,
    FilePhase,
    JobLine,
    JobMode,
    JobSpec,
    PlanMade,
    Removed,
    encode_line,
    from_fault,
    rate_decoder,
    spec_decoder,
)
from downloader.manners import give_way, own
from downloader.rate import Pacer
from downloader.reference import parse_reference
from downloader.resolver import resolve
from downloader.store import Store
from downloader.transfer import Transfer
from protocol.errors import ExitCode
from protocol.parent_watch import die_with_parent


class Job:
    """One task, and the line over which it reports."""

    def __init__(self, spec: JobSpec, out: int) -> None:
        self.spec = spec
        self._out = out
        self._nudge = threading.Event()
        self.pacer = Pacer(self._nudge.wait, time.monotonic)
        self.pacer.rate = spec.rate

    def say(self, line: JobLine) -> None:
        os.write(self._out, encode_line(line))

    def set_rate(self, rate: float) -> None:
        """Take a new share of the rate limit, also in the middle of a pause for the old one."""
        self.pacer.rate = rate
        self._nudge.set()
        self._nudge.clear()

    def run(self) -> JobLine:
        """Do it; the answer is the last line. Raises `DownloadFault`."""
        store = Store(Path(self.spec.cache_dir))
        if self.spec.mode is JobMode.PLAN:
            return self._plan()
        if self.spec.mode is JobMode.FETCH:
            return self._fetch(store)
        freed = Hub.remove(store.root, self.spec.repo, self.spec.paths, self.spec.superseded)
        store.prune(self.spec.repo)
        return Removed(freed)

    def _plan(self) -> JobLine:
        choice = self.spec.choice
        if choice is None:
            raise invalid("a plan needs a reference")
        reference = parse_reference(choice.reference)
        listing = Hub(self.spec.token).listing(reference.repo, reference.revision)
        return PlanMade(resolve(reference, choice, listing))

    def _fetch(self, store: Store) -> JobLine:
        plan = self.spec.plan
        if plan is None:
            raise invalid("a transfer needs a plan")
        transfer = Transfer(
            store,
            Hub(self.spec.token),
            plan,
            self.pacer,
            lambda index, phase: self.say(FilePhase(index, phase)),
            self._nudge.wait,
            own.rest,
        )
        give_way()
        return Fetched(str(transfer.run()))


def main() -> int:
    """Read the task, do it, write the answer. Exit code 0 also for a fault that was reported."""
    # Whatever a library prints must not get between the lines.
    out = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    source = sys.stdin.buffer
    spec = spec_decoder.decode(source.readline())
    die_with_parent(spec.parent)
    job = Job(spec, out)
    threading.Thread(target=_follow, args=(job,), name="parent-watch", daemon=True).start()
    try:
        answer = job.run()
    except DownloadFault as fault:
        answer = from_fault(fault)
    job.say(answer)
    return 0


def _follow(job: Job) -> None:
    """Take new rates; end with the downloader, whatever the transfer is doing."""
    for line in sys.stdin.buffer:
        job.set_rate(rate_decoder.decode(line).rate)
    os._exit(ExitCode.PARENT_GONE)

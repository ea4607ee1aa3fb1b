"""One job process as seen by the downloader: started, listened to, and killed when it is not wanted any more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping

import msgspec

from downloader.faults import DownloadFault, transient
from downloader.jobwire import Fault, JobLine, JobSpec, SetRate, decode_line, encode_line, to_fault
from protocol.errors import ErrorKind

_LONGEST_LINE = 16 << 20
"""Bytes: a plan of a repository with thousands of files is one line."""

NICENESS = 19
"""The weight of a job that plans: a seventieth of a model's, so it neither starves nor is felt."""

_SECRETS = frozenset({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})
_QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "HF_HUB_DISABLE_XET": "1",
}


def job_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a job process: the downloader's own without tokens, and the hub's library kept quiet."""
    return {name: value for name, value in environment.items() if name not in _SECRETS} | _QUIET


@contextlib.asynccontextmanager
async def job_process(spec: JobSpec) -> AsyncIterator[JobProcess]:
    """Run a job process for as long as the block lasts; it has been killed and reaped when the block is left."""
    # Spawned by the thread that runs the loop, which lives as long as the process: the parent-death signal of the
    # kernel follows the thread.
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "downloader.jobstart"),
            stdin=PIPE,
            stdout=PIPE,
            env=job_environment(os.environ),
            limit=_LONGEST_LINE,
        )
    except OSError as error:
        raise transient(f"no job process could be started: {error}") from error
    _step_back(process.pid)
    try:
        yield JobProcess(process, spec)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        # Not to be interrupted: an unreaped job would hold its lock and its files open.
        await asyncio.shield(process.wait())


def _step_back(pid: int) -> None:
    """Let a job take what the models leave of the cores: little weight, no preemption of a thread that computes.

    Done from here because it has to hold from the first moment: a job's own imports are its greatest burst.
    """
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, pid, NICENESS)
        if sys.platform == "linux":
            os.sched_setscheduler(pid, os.SCHED_BATCH, os.sched_param(0))


class JobProcess:
    """A running job."""

    def __init__(self, process: Process, spec: JobSpec) -> None:
        if process.stdin is None or process.stdout is None:
            raise ValueError("a job needs pipes on both sides")
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._write(encode_line(spec))

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """End the process now; `lines` then raises the fault of it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def set_rate(self, rate: float) -> None:
        """Give the job its share of the rate limit (bytes per second, 0 = none)."""
        self._write(encode_line(SetRate(rate)))

    async def lines(self) -> AsyncIterator[JobLine]:
        """What the job reports until it ends. Raises `DownloadFault` for its fault, and for an end without a word."""
        while line := await self._stdout.readline():
            try:
                message = decode_line(line)
            except msgspec.MsgspecError as error:
                raise DownloadFault(ErrorKind.INTERNAL, f"a job wrote what is no message: {error}") from error
            if isinstance(message, Fault):
                raise to_fault(message)
            yield message
        code = await self._process.wait()
        if code != 0:
            raise transient(f"the job process ended with {exit_text(code)}")

    def _write(self, line: bytes) -> None:
        if not self._stdin.is_closing():
            self._stdin.write(line)


def exit_text(code: int) -> str:
    """`signal 9` or `exit code 1`."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"

"""What the downloader and its job processes say to one another: JSON lines over the job's standard input and output.

The first line on standard input is a `JobSpec`, which carries the access token so that neither the arguments nor the
environment do. Lines after it are `SetRate`; its end means that the downloader is gone.
"""

from __future__ import annotations

import enum

import msgspec
from msgspec import Struct

from downloader.faults import DownloadFault
from protocol.download import DownloadChoice, Plan
from protocol.errors import ErrorKind


class JobMode(enum.StrEnum):
    PLAN = "plan"
    FETCH = "fetch"
    REMOVE = "remove"


class JobSpec(Struct, frozen=True, omit_defaults=True):
    """One job's task. `parent` is the process id of the downloader, `rate` bytes per second (0 = no limit)."""

    mode: JobMode
    cache_dir: str
    parent: int
    token: str = ""
    choice: DownloadChoice | None = None
    plan: Plan | None = None
    repo: str = ""
    paths: tuple[str, ...] = ()
    superseded: bool = False
    rate: float = 0.0


class SetRate(Struct, frozen=True):
    """This job's share of the rate limit from now on, in bytes per second; 0 = no limit."""

    rate: float


class Phase(enum.StrEnum):
    """What a file of a job waits for."""

    ASKING = "asking"
    LOCKED = "locked"
    FETCHING = "fetching"
    VERIFYING = "verifying"
    DONE = "done"


class FilePhase(Struct, frozen=True, tag="phase"):
    """`index` counts the plan's files from 0."""

    index: int
    phase: Phase


class PlanMade(Struct, frozen=True, tag="plan"):
    plan: Plan


class Fetched(Struct, frozen=True, tag="fetched"):
    """Everything is verified and published; `path` is the first file."""

    path: str


class Removed(Struct, frozen=True, tag="removed"):
    freed: int


class Fault(Struct, frozen=True, tag="fault", omit_defaults=True):
    """The job ends with this; see `DownloadFault`."""

    kind: ErrorKind
    message: str
    retryable: bool = False
    automatic: bool = False
    changed: bool = False
    retry_after: float = 0.0


JobLine = FilePhase | PlanMade | Fetched | Removed | Fault

_encoder = msgspec.json.Encoder()
_line_decoder: msgspec.json.Decoder[JobLine] = msgspec.json.Decoder(JobLine)
spec_decoder = msgspec.json.Decoder(JobSpec)
rate_decoder = msgspec.json.Decoder(SetRate)


def encode_line(message: JobLine | JobSpec | SetRate) -> bytes:
    return _encoder.encode(message) + b"\n"


def decode_line(line: bytes) -> JobLine:
    """Decode what a job wrote. Raises `msgspec.MsgspecError`."""
    return _line_decoder.decode(line)


def from_fault(fault: DownloadFault) -> Fault:
    return Fault(fault.kind, fault.message, fault.retryable, fault.automatic, fault.changed, fault.retry_after)


def to_fault(fault: Fault) -> DownloadFault:
    return DownloadFault(
        fault.kind,
        fault.message,
        retryable=fault.retryable,
        automatic=fault.automatic,
        changed=fault.changed,
        retry_after=fault.retry_after,
    )

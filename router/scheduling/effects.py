"""What the scheduler wants done. The owner task runs effects in order; each outcome comes back as an event."""

from __future__ import annotations

import enum

from msgspec import Struct

from protocol.errors import WireError
from router.scheduling.events import Child, ExitReason


class Spawn(Struct, frozen=True):
    """Start a worker process. `model` None makes a warm spare. Outcome: `ChildSpawned` or `SpawnFailed`."""

    child: Child
    model: str | None = None


class SendLoad(Struct, frozen=True):
    """Tell a connected, empty worker what to load."""

    child: Child
    model: str


class SendForecast(Struct, frozen=True):
    """Tell a connected spare which models it may be told to load, the likeliest first."""

    child: Child
    models: tuple[str, ...]


class SendSleep(Struct, frozen=True):
    child: Child


class SendWakeup(Struct, frozen=True):
    child: Child


class SendQuery(Struct, frozen=True):
    child: Child


class SendThreads(Struct, frozen=True):
    child: Child
    threads: int


class Stop(Struct, frozen=True):
    """Walk the stop ladder: Shutdown, SIGTERM, SIGABRT, SIGKILL, each within its budget. Outcome: `ChildExited`."""

    child: Child
    reason: ExitReason
    budget: float


class Kill(Struct, frozen=True):
    """End at once: SIGABRT (a stack dump) where `dump`, then SIGKILL."""

    child: Child
    reason: ExitReason
    dump: bool = False


class Dispatch(Struct, frozen=True):
    """Send the work of a request (again, if it was sent to a child that died; with its resume point, if parked)."""

    request: int
    child: Child


class CancelWork(Struct, frozen=True):
    request: int
    child: Child


class ParkWork(Struct, frozen=True):
    request: int
    child: Child


class EndRequest(Struct, frozen=True):
    """The request is over for the scheduler, with an error for its client."""

    request: int
    error: WireError


class Phase(enum.StrEnum):
    DOWNLOADING = "downloading"
    QUEUED = "queued"
    LOADING = "loading"
    WAKING = "waking"
    RUNNING = "running"
    PARKED = "parked"


class Notify(Struct, frozen=True):
    """Tell the waiting client what happens: position in the queue (1 = next), or progress 0..1."""

    request: int
    phase: Phase
    position: int = 0
    progress: float = 0.0


class ModelChanged(Struct, frozen=True):
    """The public view of a model changed: publish it."""

    model: str


class Record(Struct, frozen=True):
    """A decision and its reason, for the log and `/queue`."""

    model: str
    decision: str
    reason: str


class SetTimer(Struct, frozen=True):
    """Call back with `TimerFired` at this monotonic time; replaces the timer before."""

    at: float


class ReadMemory(Struct, frozen=True):
    """Read free memory of all devices; outcome: `MemoryRead`."""


Effect = (
    Spawn
    | SendLoad
    | SendForecast
    | SendSleep
    | SendWakeup
    | SendQuery
    | SendThreads
    | Stop
    | Kill
    | Dispatch
    | CancelWork
    | ParkWork
    | EndRequest
    | Notify
    | ModelChanged
    | Record
    | SetTimer
    | ReadMemory
)

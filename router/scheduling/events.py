"""What happens to the scheduler. `handle(event, now)` is its only entrance; `now` is monotonic seconds.

Models are named by load key, requests by a number unique in the life of the router, children by `Child`.
"""

from __future__ import annotations

import enum

from msgspec import Struct

from protocol.errors import WireError
from protocol.status import UpdateStatus
from router.scheduling.model import ModelEntry, Policy


class Child(Struct, frozen=True, order=True):
    """One incarnation of a child process: the name of its place, and how many were spawned before it."""

    name: str
    epoch: int

    def __str__(self) -> str:
        return f"{self.name}/{self.epoch}"


class ExitReason(enum.StrEnum):
    ASKED = "asked"
    IDLE = "idle"
    EVICTED = "evicted"
    CRASHED = "crashed"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "out_of_memory"
    LOAD_ERROR = "load_error"
    WEDGED = "wedged"
    ROUTER_STOPPING = "router_stopping"


class ExitReport(Struct, frozen=True, omit_defaults=True):
    """How a child ended. `exit_code` is negative for a signal. `stderr` holds its last lines."""

    reason: ExitReason
    exit_code: int
    message: str = ""
    stderr: tuple[str, ...] = ()


# From clients


class RequestArrived(Struct, frozen=True):
    """A request wants `model`. `deadline` is monotonic seconds. `digest` names its content for the quarantine."""

    request: int
    model: str
    priority: int = 0
    deadline: float | None = None
    autoload: bool = True
    keep_alive: float | None = None
    """Seconds of idleness after which the model unloads: 0 at once, negative never, None = as configured."""
    needs_weights: bool = True
    """False for work that a sleeping worker does asleep (tokenize, templates)."""
    digest: str = ""
    name: str = ""
    """The id that the client sent: it holds the model until `UnloadAsked` gives it up."""


class RequestAnswered(Struct, frozen=True):
    """The first byte of an answer was sent to the client: from now on a retry is impossible."""

    request: int


class RequestLeft(Struct, frozen=True):
    """Nobody waits for the answer any more."""

    request: int


class LoadAsked(Struct, frozen=True):
    model: str
    name: str = ""


class UnloadAsked(Struct, frozen=True):
    """`force` cancels what runs instead of draining it. `name` gives up only that name's hold."""

    model: str
    name: str = ""
    force: bool = False


class PinAsked(Struct, frozen=True):
    model: str
    pin: bool


class ModelsChanged(Struct, frozen=True):
    """The complete configuration after a start or a reload. `restart` are keys whose worker must be replaced."""

    models: tuple[ModelEntry, ...]
    policy: Policy
    restart: tuple[str, ...] = ()


class StopAsked(Struct, frozen=True):
    """The router drains: nothing new is admitted; running requests may end before `deadline`."""

    deadline: float


# From children and their processes


class ChildSpawned(Struct, frozen=True):
    child: Child
    pid: int


class SpawnFailed(Struct, frozen=True):
    child: Child
    message: str


class ChildConnected(Struct, frozen=True):
    """`Hello` was accepted."""

    child: Child


class ChildReported(Struct, frozen=True):
    """An `UpdateStatus` with a higher revision than any before."""

    child: Child
    status: UpdateStatus


class ChildProgressed(Struct, frozen=True):
    """The process was seen to work (CPU time, page faults, bytes read): a sign of life during a load."""

    child: Child


class ChildExited(Struct, frozen=True):
    """The process has been reaped."""

    child: Child
    report: ExitReport


class ChildStuck(Struct, frozen=True):
    """Not reaped 10 s after SIGKILL."""

    child: Child


class RequestEnded(Struct, frozen=True):
    """The worker has answered: well, with `error`, or by parking (`parked`)."""

    request: int
    child: Child
    parked: bool = False
    error: WireError | None = None


# From the machine


class TimerFired(Struct, frozen=True):
    """The time of the last `SetTimer` has come; stray ones are harmless."""


class MemoryRead(Struct, frozen=True):
    """Bytes free per device, read now; `settled` when two readings agreed."""

    free: tuple[tuple[str, int], ...]
    settled: bool = True


class MemoryMeasured(Struct, frozen=True):
    """What `model` was seen to occupy, replacing its prediction."""

    model: str
    entry: ModelEntry


Event = (
    RequestArrived
    | RequestAnswered
    | RequestLeft
    | LoadAsked
    | UnloadAsked
    | PinAsked
    | ModelsChanged
    | StopAsked
    | ChildSpawned
    | SpawnFailed
    | ChildConnected
    | ChildReported
    | ChildProgressed
    | ChildExited
    | ChildStuck
    | RequestEnded
    | TimerFired
    | MemoryRead
    | MemoryMeasured
)

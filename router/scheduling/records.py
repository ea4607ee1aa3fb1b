"""What the scheduler remembers of a model, a worker and a request. Only `Ledger` and the policies change them."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass, field

from protocol.status import UpdateStatus
from router.scheduling.events import Child, ExitReason, ExitReport
from router.scheduling.liveness import Watch
from router.scheduling.model import ModelEntry, Needs
from router.scheduling.states import State

STORY_LENGTH = 24


class Urge(enum.IntEnum):
    """Why a model is to be loaded though no request waits for it, the weakest first."""

    NONE = 0
    HOME = 1
    """Nothing runs or waits: back to the models that are at home here. Makes only strangers leave."""
    BACKGROUND = 2
    """Loaded at start, behind real requests, into free room only."""
    ASKED = 3
    """Somebody asked for the load: counts like a waiting request."""


class DrainCause(enum.StrEnum):
    SWAP = "swap"
    UNLOAD = "unload"
    RECYCLE = "recycle"
    REMOVED = "removed"


@dataclass(slots=True, eq=False)
class Request:
    """A request from its arrival until its client has its end and no worker holds it."""

    id: int
    model: Model
    priority: int
    seq: int
    arrived: float
    deadline: float | None
    wait_until: float | None
    needs_weights: bool
    digest: str
    worker: Worker | None = None
    dispatched: float = 0.0
    answered: bool = False
    over: bool = False
    """The client has its end; only the worker still holds the request."""
    parking: bool = False
    parked: bool = False
    crashes: int = 0
    failed_loads: int = 0
    missing: int = 0
    """Successive answers to a later ping that did not list the request."""
    resent: bool = False
    told: tuple[str, int] | None = None
    """Phase and position of the last notice."""

    @property
    def rank(self) -> tuple[int, int]:
        return (-self.priority, self.seq)

    @property
    def suspect(self) -> bool:
        """It was running at a crash and has not shown since that it is harmless."""
        return self.crashes > 0 and not self.answered


@dataclass(slots=True, eq=False)
class Worker:
    """One child process. `model` None for a warm spare."""

    child: Child
    model: Model | None
    born: float
    watch: Watch
    pid: int = 0
    connected: bool = False
    needs: Needs = ()
    """Memory that is reserved for it."""
    charged: bool = False
    """Whether it has, or is to have, a model in memory: not as a spare, not asleep."""
    stopping: ExitReason | None = None
    stuck: bool = False
    leases: dict[int, Request] = field(default_factory=dict)
    heavy: int = 0
    """Leases that need the weights."""
    served: int = 0
    status: UpdateStatus | None = None
    threads: int = 0
    queried: float | None = None
    """When the ping was sent that is not answered yet."""
    called: float = 0.0
    """When the last `Wakeup` was sent: an answer to an earlier ping says nothing of it."""
    look_at: float = 0.0
    """When its signs of life are looked at next."""
    forecast: tuple[str, ...] = ()
    """What a spare has been told to get ready for."""


@dataclass(slots=True, eq=False)
class Failure:
    """A crash that counts, and the requests that ran at it."""

    at: float
    suspects: frozenset[int]


@dataclass(slots=True, eq=False)
class Model:
    """One load key."""

    entry: ModelEntry
    key: str
    since: float
    state: State = State.UNLOADED
    reason: str = ""
    worker: Worker | None = None
    waiting: list[Request] = field(default_factory=list)
    """Requests without a lease that need the weights, in the order in which they are served."""
    light: list[Request] = field(default_factory=list)
    """The same for work that needs no weights."""
    newcomers: list[Request] = field(default_factory=list)
    """Those who were put into a line and have not been told their position."""
    news_at: float | None = None
    """When all who wait are told their positions anew."""
    urge: Urge = Urge.NONE
    holds: set[str] = field(default_factory=set)
    """Names that were used since the load; the worker stays while another name holds it."""
    pinned: bool | None = None
    gone: bool = False
    """No longer configured: dropped once it has stopped."""
    suppressed: bool = False
    """Unloaded on purpose: not loaded again for being at home here until it is used."""

    blocked: str = ""
    """Why the model waits for room, for people."""
    queued_since: float = 0.0
    queued_seq: int = 0
    place: int = 0
    turn: bool = False
    """Another model was drained for this one: it comes first, or the other would take its room back."""
    coming: bool = False
    """Only the end of stopping workers is awaited: its own process may start meanwhile."""
    must_evict: int = 0
    """Evictions that have to come before the next load, because the last one failed for lack of memory."""
    awaited: tuple[Child, ...] = ()
    """Workers that were evicted so that the next load has more memory: it does not begin while they live."""
    memory_retried: bool = False
    reading_until: float | None = None
    """A reading of free memory is awaited, no longer than this."""
    read_again: float | None = None

    drain: DrainCause | None = None
    drain_before: int = 0
    """While it drains for a swap: requests with a lower `seq` belong to this turn and are still served."""
    turn_seq: int = 0
    """Requests with a lower `seq` waited already when the model became ready."""
    park_at: float | None = None
    park_sent: bool = False

    started: float = 0.0
    ready_at: float = 0.0
    load_seconds: float = 0.0
    service_seconds: float = 0.0
    last_used: float = 0.0
    idle_since: float | None = None
    keep_alive: float | None = None
    swap_unanswered: bool = False
    """Took a spare, and nothing was answered yet: the refill waits."""

    failures: list[Failure] = field(default_factory=list)
    retry_at: float = 0.0
    exit: ExitReport | None = None
    slowest: dict[str, float] = field(default_factory=dict)
    """Longest standstill seen of each sign of life, in seconds."""
    story: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))

    @property
    def pin(self) -> bool:
        return self.entry.pin if self.pinned is None else self.pinned

    @property
    def resident(self) -> bool:
        """Memory is reserved for it, and it counts against `models_max`."""
        return self.worker is not None and self.worker.charged

    @property
    def leases(self) -> int:
        return len(self.worker.leases) if self.worker else 0

    @property
    def busy(self) -> bool:
        """Somebody uses the model or waits for it."""
        return bool(self.waiting or self.light or (self.worker and self.worker.leases))

    @property
    def wanted(self) -> bool:
        """There is a reason to have the weights in memory."""
        if self.waiting or self.urge:
            return True
        return bool(self.light) and self.state is not State.SLEEPING

    @property
    def capacity(self) -> int:
        return max(1, self.entry.slots)

"""What others may know: read-only values made from the ledger."""

from __future__ import annotations

from msgspec import Struct

from router.scheduling import queue
from router.scheduling.budget import occupied
from router.scheduling.events import Child, ExitReport
from router.scheduling.ledger import Ledger
from router.scheduling.records import Model, Request
from router.scheduling.states import PUBLIC, State


class ModelView(Struct, frozen=True, omit_defaults=True):
    """One model. Times are monotonic seconds. `progress` is 0..1 within `stage` while it loads or wakes.

    `failures` are those in a row; `retry_at` is when the next start is allowed, 0 if it is now.
    """

    key: str
    names: tuple[str, ...]
    state: State
    status: str
    """llama-server's word for `state`."""
    reason: str
    since: float
    child: Child | None = None
    progress: float = 0.0
    stage: str = ""
    failures: int = 0
    failed: bool = False
    retry_at: float = 0.0
    exit: ExitReport | None = None
    running: int = 0
    waiting: int = 0
    parked: int = 0
    pin: bool = False
    resident: bool = False
    reserved: tuple[tuple[str, int], ...] = ()
    """Bytes per device that the budget is charged for it; a shared file is charged here in full."""
    blocked: str = ""
    load_seconds: float = 0.0
    last_used: float = 0.0


class WaitingView(Struct, frozen=True, omit_defaults=True):
    """A request without a lease. `position` counts from 1 within its model; `blocked` says what it waits for."""

    request: int
    model: str
    position: int
    waited: float
    priority: int = 0
    parked: bool = False
    blocked: str = ""


class QueuedModel(Struct, frozen=True, omit_defaults=True):
    """A model that waits for room, in the order of the queue."""

    model: str
    place: int
    waited: float
    requests: int
    priority: int
    blocked: str


class Decision(Struct, frozen=True):
    at: float
    model: str
    decision: str
    reason: str


def model_view(model: Model) -> ModelView:
    worker = model.worker
    status = worker.status if worker else None
    coming = status is not None and model.state in (State.LOADING, State.WAKING)
    lines = (*model.waiting, *model.light)
    return ModelView(
        key=model.key,
        names=model.entry.names,
        state=model.state,
        status=PUBLIC[model.state],
        reason=model.reason,
        since=model.since,
        child=worker.child if worker else None,
        progress=status.progress if coming and status else 0.0,
        stage=status.stage if coming and status else "",
        failures=len(model.failures),
        failed=model.state in (State.FAILED, State.BACKOFF),
        retry_at=model.retry_at if model.state in (State.FAILED, State.BACKOFF) else 0.0,
        exit=model.exit,
        running=model.leases,
        waiting=len(lines),
        parked=sum(request.parked for request in lines),
        pin=model.pin,
        resident=model.resident,
        reserved=tuple(occupied([worker.needs]).items()) if worker and worker.charged else (),
        blocked=model.blocked,
        load_seconds=model.load_seconds,
        last_used=model.last_used,
    )


def blocked_by(request: Request) -> str:
    """Why a request has no lease."""
    model = request.model
    if model.blocked:
        return model.blocked
    if model.state is State.READY:
        return f"{model.leases} requests run, as many as its worker may hold"
    return f"the model is {model.state.replace('_', ' ')}"


def waiting_views(ledger: Ledger) -> list[WaitingView]:
    return [
        WaitingView(
            request=request.id,
            model=model.key,
            position=position,
            waited=ledger.now - request.arrived,
            priority=request.priority,
            parked=request.parked,
            blocked=blocked_by(request),
        )
        for model in ledger.models.values()
        for line in (model.waiting, model.light)
        for position, request in enumerate(line, start=1)
    ]


def queue_view(ledger: Ledger) -> list[QueuedModel]:
    return [
        QueuedModel(
            model=model.key,
            place=place,
            waited=ledger.now - model.queued_since,
            requests=len(model.waiting) + len(model.light),
            priority=queue.priority(model),
            blocked=model.blocked,
        )
        for place, model in enumerate(queue.in_order(ledger.queue.values()), start=1)
    ]


def decisions(ledger: Ledger) -> list[Decision]:
    return [Decision(at, entry.model, entry.decision, entry.reason) for at, entry in ledger.decisions]

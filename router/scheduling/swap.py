"""How a busy model makes room: it drains once the others have waited long enough; what still runs is parked."""

from __future__ import annotations

from protocol.errors import ErrorKind, WireError
from router.scheduling.effects import CancelWork, ParkWork
from router.scheduling.events import ExitReason
from router.scheduling.ledger import Ledger
from router.scheduling.model import Policy
from router.scheduling.records import DrainCause, Model, Urge
from router.scheduling.states import State, Trigger
from router.scheduling.workers import EXIT_REASONS, clear_drain, stop

SWAP_WAIT_FLOOR = 5.0
SWAP_WAIT_CEILING = 120.0
SWAP_WAIT_FACTOR = 3.0


def swap_wait(coming: Model, leaving: Model, policy: Policy) -> float:
    """Seconds that `coming` waits before `leaving`, which is in use, has to drain."""
    if policy.max_swap_wait is not None:
        return policy.max_swap_wait
    both = SWAP_WAIT_FACTOR * (coming.load_seconds + leaving.load_seconds)
    return min(max(SWAP_WAIT_FLOOR, both), SWAP_WAIT_CEILING)


def drain_at(coming: Model, leaving: Model, policy: Policy) -> float:
    """When `leaving` begins to drain for `coming`. Each turn in memory lasts at least one swap wait if it is used."""
    since = max(coming.queued_since, leaving.ready_at)
    return max(since + swap_wait(coming, leaving, policy), leaving.ready_at + policy.min_residency)


def drain(ledger: Ledger, model: Model, cause: DrainCause, why: str, before: int = 0) -> None:
    """Grant no new leases, except to requests with a `seq` below `before`: their turn is this one.

    What runs after the drain time-out is parked, or cancelled if the model never returns.
    """
    ledger.move(model, Trigger.DRAIN, why)
    model.drain = cause
    model.drain_before = before
    model.park_sent = False
    if cause is not DrainCause.UNLOAD:  # an unload that nobody forces waits for what runs
        model.park_at = ledger.now + ledger.policy.drain_timeout
        ledger.alarms.at(model.park_at)
    ledger.record(model.key, "drain", why)


def resume(ledger: Ledger, model: Model, why: str) -> None:
    """The room is not wanted any more."""
    ledger.move(model, Trigger.RESUME, why)
    clear_drain(model)
    ledger.record(model.key, "resume", why)


def advance(ledger: Ledger, model: Model) -> None:
    """Take a draining model as far as it can go now."""
    worker, cause = model.worker, model.drain
    if model.state is not State.DRAINING or worker is None or cause is None:
        return
    if not worker.leases and not any(request.seq < model.drain_before for request in model.waiting):
        if cause is DrainCause.RECYCLE and not model.urge:
            model.urge = Urge.ASKED
        stop(ledger, model, EXIT_REASONS[cause], model.reason)
    elif model.park_at is not None and ledger.now >= model.park_at and not model.park_sent:
        model.park_sent = True
        model.drain_before = 0
        for request in worker.leases.values():
            if request.over or not request.needs_weights:
                continue
            if cause is DrainCause.REMOVED:
                ledger.emit(CancelWork(request.id, worker.child))
                ledger.end(request, WireError(ErrorKind.UNAVAILABLE, f"{model.entry.names[0]}: {model.reason}"))
            else:
                request.parking = True
                ledger.emit(ParkWork(request.id, worker.child))
        ledger.record(model.key, "park", f"still running {ledger.policy.drain_timeout:g} s after the drain began")


def force(ledger: Ledger, model: Model, why: str) -> None:
    """Cancel what runs and stop at once."""
    worker = model.worker
    assert worker is not None
    for request in list(worker.leases.values()):
        if not request.over:
            ledger.emit(CancelWork(request.id, worker.child))
            ledger.end(request, WireError(ErrorKind.UNAVAILABLE, why))
    stop(ledger, model, ExitReason.ASKED, why)

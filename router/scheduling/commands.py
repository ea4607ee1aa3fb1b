"""What people ask for: load, unload, pin, a new configuration, the end."""

from __future__ import annotations

from protocol.errors import ErrorKind, WireError
from router.scheduling import swap, workers
from router.scheduling.effects import CancelWork, ModelChanged
from router.scheduling.events import ExitReason, LoadAsked, ModelsChanged, PinAsked, StopAsked, UnloadAsked
from router.scheduling.ledger import Ledger
from router.scheduling.model import ModelEntry
from router.scheduling.records import DrainCause, Model, Urge
from router.scheduling.states import PROMISED, WITHOUT_WORKER, State, Trigger


def load(ledger: Ledger, event: LoadAsked) -> None:
    """Load a model as if a request waited for it. Ends a backoff or cooldown."""
    model = ledger.models.get(event.model)
    if model is None or model.gone or ledger.stop_deadline is not None:
        return
    if event.name:
        model.holds.add(event.name)
    model.suppressed = False
    if model.state in (State.READY, State.FALLING_ASLEEP):
        return
    model.urge = Urge.ASKED
    model.retry_at = 0.0
    ledger.record(model.key, "ask", "a load was asked for")
    ledger.touch(model)


def unload(ledger: Ledger, event: UnloadAsked) -> None:
    """Drain and stop, or with `force` cancel and stop; a load is aborted at once. Who waits gets 503."""
    model = ledger.models.get(event.model)
    if model is None:
        return
    if event.name:
        model.holds.discard(event.name)
        if model.holds:
            ledger.record(model.key, "keep", f"{event.name} let go; {', '.join(sorted(model.holds))} in use")
            return
    why = "unloaded on request"
    model.suppressed = True
    ledger.end_waiting(model, ErrorKind.UNAVAILABLE, f"the model was {why}")
    _leave(ledger, model, DrainCause.UNLOAD, why, force=event.force)


def _leave(ledger: Ledger, model: Model, cause: DrainCause, why: str, *, force: bool = False) -> None:
    """Make a model go, from whatever state it is in."""
    if model.state in PROMISED and not model.leases:
        workers.stop(ledger, model, ExitReason.ASKED, why)
    elif model.state in WITHOUT_WORKER:
        model.retry_at = 0.0
        if model.state in (State.BACKOFF, State.FAILED):
            ledger.move(model, Trigger.COOLED, why)
            model.failures.clear()
    elif model.state is State.STOPPING:
        return
    elif force:
        swap.force(ledger, model, why)
    elif model.state is State.READY and model.leases:
        swap.drain(ledger, model, cause, why)
    elif model.state is State.DRAINING:
        model.drain = cause
        model.reason = why
        if cause is DrainCause.UNLOAD:
            model.park_at = None
    elif model.leases:
        swap.force(ledger, model, why)
    else:
        workers.stop(ledger, model, ExitReason.ASKED, why)


def pin(ledger: Ledger, event: PinAsked) -> None:
    model = ledger.models.get(event.model)
    if model is None:
        return
    model.pinned = event.pin
    if event.pin and model.drain is DrainCause.SWAP:
        swap.resume(ledger, model, "it was pinned")
    ledger.record(model.key, "pin" if event.pin else "unpin", "on request")
    ledger.room_changed = True
    ledger.touch(model)
    ledger.emit(ModelChanged(model.key))


def configure(ledger: Ledger, event: ModelsChanged) -> None:
    """Apply a configuration as a diff: what is unchanged keeps running, what vanished drains and stops."""
    ledger.policy = event.policy
    ledger.quarantine.clear()
    ledger.room_changed = True
    ledger.workers_changed = True
    ledger.busy_changed = True
    entries = {entry.key: entry for entry in event.models}
    for model in list(ledger.models.values()):
        if model.key not in entries:
            _remove(ledger, model)
    for entry in event.models:
        _adopt(ledger, entry)
    for key in event.restart:
        changed = ledger.models.get(key)
        if changed is not None and not changed.gone:
            _restart(ledger, changed)


def _adopt(ledger: Ledger, entry: ModelEntry) -> None:
    model = ledger.models.get(entry.key)
    if model is None:
        model = Model(entry=entry, key=entry.key, since=ledger.now)
        ledger.models[entry.key] = model
        ledger.changed.add(entry.key)
        if entry.load_on_startup:
            model.urge = Urge.BACKGROUND
        ledger.emit(ModelChanged(entry.key))
    elif model.entry != entry or model.gone:
        model.entry = entry
        ledger.touch(model)
        model.gone = False
        if model.drain is DrainCause.REMOVED:
            swap.resume(ledger, model, "configured again")
        if model.worker and model.worker.charged:
            ledger.reserve(model.worker, entry.needs)
        ledger.emit(ModelChanged(entry.key))
    ledger.touch(model)


def _remove(ledger: Ledger, model: Model) -> None:
    why = "removed from the configuration"
    model.gone = True
    ledger.end_waiting(model, ErrorKind.NOT_FOUND, f"the model was {why}")
    _leave(ledger, model, DrainCause.REMOVED, why)
    ledger.touch(model)


def _restart(ledger: Ledger, model: Model) -> None:
    if model.state in (State.READY, State.SLEEPING, *PROMISED):
        model.urge = Urge.ASKED
        _leave(ledger, model, DrainCause.RECYCLE, "its configuration changed")


def stop_all(ledger: Ledger, event: StopAsked) -> None:
    """Admit nothing more; end who waits; let what runs go on until the deadline."""
    ledger.stop_deadline = event.deadline
    ledger.alarms.at(event.deadline)
    for model in ledger.models.values():
        ledger.end_waiting(model, ErrorKind.UNAVAILABLE, "the server is stopping")
        ledger.touch(model)


def advance_stop(ledger: Ledger) -> None:
    """While the router stops: stop each worker once it runs nothing, and all of them at the deadline."""
    if ledger.stop_deadline is None:
        return
    late = ledger.now >= ledger.stop_deadline
    why = "the server is stopping"
    for model in ledger.models.values():
        if model.waiting or model.light:
            ledger.end_waiting(model, ErrorKind.UNAVAILABLE, why)
    for worker in list(ledger.workers.values()):
        if worker.stopping is not None:
            continue
        if late:
            for request in list(worker.leases.values()):
                if not request.over:
                    ledger.emit(CancelWork(request.id, worker.child))
                    ledger.end(request, WireError(ErrorKind.UNAVAILABLE, why))
        if not worker.leases or late:
            if worker.model is None:
                workers.dismiss(ledger, worker, ExitReason.ROUTER_STOPPING)
            else:
                workers.stop(ledger, worker.model, ExitReason.ROUTER_STOPPING, why)

"""What happens to models that nobody uses: sleep, unload, replacement after long service, the return home."""

from __future__ import annotations

from router.scheduling import swap, workers
from router.scheduling.effects import SendSleep
from router.scheduling.events import ExitReason
from router.scheduling.ledger import Ledger
from router.scheduling.records import DrainCause, Model, Urge
from router.scheduling.states import State, Trigger


def unload_after(model: Model) -> float | None:
    """Seconds of idleness after which the worker ends, None for never. `pin` beats all."""
    if model.pin:
        return None
    if model.keep_alive is not None:
        return model.keep_alive if model.keep_alive >= 0 else None
    return model.entry.unload_idle or None


def retire(ledger: Ledger, model: Model) -> None:
    """Have a worn worker replaced before it gets more work."""
    if model.state is State.READY:
        wear = _wear(model)
        if wear:
            swap.drain(ledger, model, DrainCause.RECYCLE, wear)


def advance(ledger: Ledger, model: Model) -> None:
    """Let an unused model sleep or end when its time has come; note when it became idle."""
    if model.state not in (State.READY, State.SLEEPING) or model.busy or model.urge:
        model.idle_since = None
        return
    if model.idle_since is None:
        model.idle_since = ledger.now
    if model.swap_unanswered:
        model.swap_unanswered = False
        ledger.workers_changed = True
    limit = unload_after(model)
    if limit is not None:
        if ledger.now >= model.idle_since + limit:
            model.suppressed = True
            workers.stop(ledger, model, ExitReason.IDLE, f"idle for {limit:g} s")
            return
        ledger.alarms.at(model.idle_since + limit)
    if model.state is State.READY and model.entry.sleep_idle and not model.pin:
        if ledger.now >= model.idle_since + model.entry.sleep_idle:
            _fall_asleep(ledger, model)
        else:
            ledger.alarms.at(model.idle_since + model.entry.sleep_idle)


def _fall_asleep(ledger: Ledger, model: Model) -> None:
    worker = model.worker
    assert worker is not None
    why = f"idle for {model.entry.sleep_idle:g} s"
    ledger.move(model, Trigger.SLEEP, why)
    ledger.record(model.key, "sleep", why)
    ledger.emit(SendSleep(worker.child))


def _wear(model: Model) -> str:
    """Why the worker is to be replaced between two requests, empty if it is not."""
    worker, entry = model.worker, model.entry
    if worker is None:
        return ""
    if entry.recycle_after and worker.served >= entry.recycle_after:
        return f"replaced after {worker.served} requests"
    if entry.max_memory and worker.status and worker.status.memory.anonymous > entry.max_memory:
        return f"replaced for using {worker.status.memory.anonymous} bytes, more than max-memory"
    return ""


def go_home(ledger: Ledger) -> None:
    """When nothing runs or waits anywhere, load the models that are at home here."""
    homeless = [
        model
        for model in ledger.models.values()
        if model.entry.home and model.state is State.UNLOADED and not model.urge and not model.suppressed
    ]
    if not homeless or ledger.stop_deadline is not None or ledger.requests or ledger.queue:
        return
    for model in homeless:
        model.urge = Urge.HOME
        ledger.touch(model)

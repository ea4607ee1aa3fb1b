"""Readings of free memory: only a veto over what the reservations allow."""

from __future__ import annotations

from protocol.errors import ErrorKind
from router.scheduling import budget, eviction, workers
from router.scheduling.effects import ReadMemory
from router.scheduling.events import ExitReason, MemoryRead
from router.scheduling.ledger import Ledger
from router.scheduling.records import Model
from router.scheduling.states import State

RETRY_AFTER = 10.0
"""Seconds after which a refused client may try again: memory of others may be free by then."""

READING_INTERVAL = 0.2
"""Seconds between two readings that have to agree."""


def read(ledger: Ledger, event: MemoryRead) -> None:
    """Let the loads go on for which there is room, also by this reading; evict for the others, or refuse them."""
    for model in list(ledger.models.values()):
        if model.state is not State.SPAWNING or model.reading_until is None or model.worker is None:
            continue
        mapped = [worker.needs for worker in ledger.reserved() if worker is not model.worker]
        missing = budget.lacking(event.free, model.entry.needs, mapped)
        if not missing:
            _go_on(ledger, model)
        elif not event.settled:
            model.read_again = ledger.now + READING_INTERVAL
            ledger.alarms.at(model.read_again)
        elif not any(worker.stopping for worker in ledger.reserved()):
            _veto(ledger, model, missing)


def expire(ledger: Ledger) -> None:
    """Read again where the last reading had not settled; one that never does vetoes nothing."""
    again = False
    for model in ledger.models.values():
        if model.reading_until is not None and model.reading_until <= ledger.now:
            _go_on(ledger, model)
        elif model.read_again is not None and model.read_again <= ledger.now:
            model.read_again = None
            again = True
    if again:
        ledger.emit(ReadMemory())


def again(ledger: Ledger) -> None:
    """A process has gone: read again for those who wait for it."""
    for model in ledger.models.values():
        if model.reading_until is not None:
            model.reading_until = ledger.now + workers.READING_PATIENCE
            ledger.alarms.at(model.reading_until)
            ledger.emit(ReadMemory())


def _go_on(ledger: Ledger, model: Model) -> None:
    model.reading_until = None
    model.read_again = None
    workers.load_if_possible(ledger, model)


def _veto(ledger: Ledger, model: Model, missing: dict[str, int]) -> None:
    def suffices(victims: list[Model]) -> bool:
        freed = budget.occupied(victim.worker.needs for victim in victims if victim.worker)
        return all(freed.get(device, 0) >= count for device, count in missing.items())

    idle = sorted(
        (other for other in ledger.resident() if other is not model and eviction.idle(other)), key=eviction.by_worth
    )
    victims = eviction.choose(idle, suffices)
    words = ", ".join(f"{budget.size(count)} on {device}" for device, count in missing.items())
    if victims is None:
        text = f"too little memory is free: {words} missing"
        if any(not other.pin for other in ledger.resident() if other is not model):
            model.must_evict = 1  # back into the queue, until one of them may go
        else:
            ledger.record(model.key, "refuse", text)
            ledger.end_waiting(model, ErrorKind.UNAVAILABLE, text, RETRY_AFTER)
        workers.stop(ledger, model, ExitReason.OUT_OF_MEMORY, text)
        return
    model.reading_until = ledger.now + model.entry.stop_timeout + workers.READING_PATIENCE
    ledger.alarms.at(model.reading_until)
    for victim in victims:
        workers.stop(ledger, victim, ExitReason.EVICTED, f"evicted for {model.entry.names[0]}: {words} missing")

"""Leases: which waiting requests a worker gets now."""

from __future__ import annotations

from router.scheduling.effects import Phase
from router.scheduling.ledger import Ledger
from router.scheduling.records import Model, Request
from router.scheduling.states import State

LIGHT_IN_FLIGHT = 64
"""Requests without need of weights that a worker is sent at most: they take no slot."""

NOTICE_INTERVAL = 1.0

_WAITING_PHASE = {
    State.SPAWNING: Phase.LOADING,
    State.LOADING: Phase.LOADING,
    State.WAKING: Phase.WAKING,
}


def in_flight_limit(ledger: Ledger, model: Model) -> int:
    """Requests that need the weights which the worker of a model may hold."""
    return max(1, ledger.policy.in_flight_factor) * model.capacity


def dispatch(ledger: Ledger, model: Model) -> None:
    """Grant leases to those who wait, as far as the model's state and the bound allow."""
    worker = model.worker
    if worker is None or worker.stopping is not None:
        return
    if model.light and model.state in (State.READY, State.SLEEPING):
        room = LIGHT_IN_FLIGHT - (len(worker.leases) - worker.heavy)
        chosen, model.light[:] = model.light[:room], model.light[room:]
        for request in chosen:
            ledger.grant(request, worker)
    draining = model.state is State.DRAINING
    if not model.waiting or not (model.state is State.READY or (draining and model.drain_before)):
        return
    limit = in_flight_limit(ledger, model)
    index = 0
    while index < len(model.waiting) and worker.heavy < limit:
        request = model.waiting[index]
        if draining and request.seq >= model.drain_before:
            index += 1
            continue
        if request.suspect and any(other.suspect for other in worker.leases.values()):
            index += 1  # one at a time, so that the next crash shows which of them it was
            continue
        del model.waiting[index]
        ledger.grant(request, worker)


def greet(ledger: Ledger, model: Model) -> None:
    """Tell those who came since the last look, and still wait, where they stand. The others hear it a little later."""
    if not model.newcomers:
        return
    newcomers, model.newcomers = model.newcomers, []
    for request in newcomers:
        if request.worker is None and not request.over:
            line = model.waiting if request.needs_weights else model.light
            _tell(ledger, request, line.index(request) + 1, 0.0)
    if model.waiting and model.news_at is None:
        model.news_at = ledger.now + NOTICE_INTERVAL
        ledger.alarms.at(model.news_at)


def announce(ledger: Ledger, model: Model, progress: float = 0.0) -> None:
    """Tell each waiting client its position, or how far the load is."""
    for line in (model.waiting, model.light):
        for position, request in enumerate(line, start=1):
            _tell(ledger, request, position, progress)


def _tell(ledger: Ledger, request: Request, position: int, progress: float) -> None:
    model = request.model
    phase = _WAITING_PHASE.get(model.state)
    if request.parked:
        ledger.notify(request, Phase.PARKED, position + model.place)
    elif phase is not None:
        ledger.notify(request, phase, 0, progress)
    else:
        ledger.notify(request, Phase.QUEUED, position + model.place)


def requeue(ledger: Ledger, request: Request) -> None:
    """Back into the line, at the place of its arrival; the wait limit starts anew only for its first lease."""
    request.wait_until = None
    ledger.enqueue(request)

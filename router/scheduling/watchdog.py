"""Pings workers, compares what they hold with what they should hold, and replaces the wedged ones."""

from __future__ import annotations

from protocol.errors import ErrorKind, WireError
from protocol.status import UpdateStatus
from router.scheduling.effects import CancelWork, Dispatch, SendQuery
from router.scheduling.ledger import Ledger
from router.scheduling.liveness import ANSWER
from router.scheduling.records import Worker
from router.scheduling.states import State
from router.scheduling.workers import answer_query, call, kill_wedged, watch_over

MISSES = 2
"""Answers to later pings in which a request is absent, until it counts as lost."""


def look(ledger: Ledger) -> None:
    """Ping those who were silent, and judge those who were pinged or have work."""
    for worker in list(ledger.workers.values()):
        if worker.stopping is not None:
            continue
        verdict = worker.watch.verdict(ledger.now, ledger.policy.wedge_after)
        if verdict:
            kill_wedged(ledger, worker, f"wedged: {verdict}")
            continue
        silent = ledger.now >= worker.watch.heard + ledger.policy.query_interval
        if worker.connected and worker.queried is None and silent:
            ping(ledger, worker)
        watch_over(ledger, worker)


def ping(ledger: Ledger, worker: Worker) -> None:
    worker.queried = ledger.now
    worker.watch.expect(ANSWER, ledger.now)
    watch_over(ledger, worker)
    ledger.emit(SendQuery(worker.child))


def heard(ledger: Ledger, worker: Worker, status: UpdateStatus) -> None:
    """Take in a status: signs of life, and whether a ping was answered."""
    worker.status = status
    if worker.model is not None:
        ledger.changed.add(worker.model.key)
    worker.watch.observe(status, bool(worker.leases), ledger.now)
    if status.answers and worker.queried is not None:
        asked = worker.queried
        answer_query(worker, ledger.now)
        _compare(ledger, worker, status, asked)
        model = worker.model
        asleep = model is not None and model.state is State.WAKING and status.state == "sleeping"
        if model is not None and asleep and asked > max(model.started, worker.called):
            call(ledger, worker)  # the answer proves that what came before it was not acted upon
    watch_over(ledger, worker)


def _compare(ledger: Ledger, worker: Worker, status: UpdateStatus, asked: float) -> None:
    """Work is delivered in order, so the answer to a ping that was sent after it must list it."""
    held = set(status.held)
    for request in list(worker.leases.values()):
        if request.dispatched >= asked or request.id in held:
            request.missing = 0
            continue
        request.missing += 1
        if request.missing < MISSES:
            ping_again = worker.queried is None
            if ping_again:
                ping(ledger, worker)
            continue
        if request.over:
            ledger.release(request)
            ledger.requests.pop(request.id, None)
        elif request.answered or request.resent:
            ledger.emit(CancelWork(request.id, worker.child))
            ledger.release(request)
            ledger.end(request, WireError(ErrorKind.INTERNAL, "the worker lost the request"))
        else:
            request.resent = True
            request.missing = 0
            request.dispatched = ledger.now
            ledger.record(worker.model.key if worker.model else "", "resend", f"{worker.child} lost {request.id}")
            ledger.emit(Dispatch(request.id, worker.child))

"""Requests come, are answered, leave and end."""

from __future__ import annotations

from collections.abc import Callable

from protocol.errors import ErrorKind, WireError
from router.scheduling import admission, queue
from router.scheduling.dispatch import announce, requeue
from router.scheduling.effects import CancelWork, EndRequest
from router.scheduling.events import RequestAnswered, RequestArrived, RequestEnded, RequestLeft
from router.scheduling.ledger import Ledger
from router.scheduling.records import Model, Request
from router.scheduling.states import PROMISED, WITHOUT_WORKER, State

SERVICE_SMOOTHING = 0.2


def arrived(ledger: Ledger, event: RequestArrived) -> None:
    """Take a request in, or refuse it at once with the reason."""
    model = ledger.models.get(event.model)
    error = _refusal(ledger, model, event)
    if error is not None or model is None:
        ledger.emit(EndRequest(event.request, error or _unknown(event.model)))
        return
    limit = queue.wait_limit(model.entry, ledger.policy)
    request = Request(
        id=event.request,
        model=model,
        priority=event.priority + model.entry.priority,
        seq=ledger.number(),
        arrived=ledger.now,
        deadline=event.deadline,
        wait_until=ledger.now + limit if limit else None,
        needs_weights=event.needs_weights,
        digest=event.digest,
    )
    for at in (request.deadline, request.wait_until):
        if at is not None:
            ledger.alarms.at(at)
    ledger.requests[request.id] = request
    model.keep_alive = event.keep_alive
    model.suppressed = False
    if event.name:
        model.holds.add(event.name)
    ledger.enqueue(request)


def _unknown(model: str) -> WireError:
    return WireError(ErrorKind.NOT_FOUND, f"model {model} is not configured", param="model")


def _refusal(ledger: Ledger, model: Model | None, event: RequestArrived) -> WireError | None:
    """The checks of a new request, in this order:

    1. the model is configured, the router is not stopping, and there is time left;
    2. the request is not known to kill workers;
    3. the model is not in a cooldown after failures;
    4. it is loaded, or may be loaded for a request;
    5. it can have room at all;
    6. the line is not too long.
    """
    policy = ledger.policy
    if model is None or model.gone:  # 1
        return _unknown(event.model)
    name = event.name or (model.entry.names[0] if model.entry.names else model.key)
    if ledger.stop_deadline is not None:
        return WireError(ErrorKind.UNAVAILABLE, "the server is stopping")
    if event.deadline is not None and event.deadline <= ledger.now:
        return WireError(ErrorKind.DEADLINE, "the deadline of the request had passed when it came")
    if event.digest and (model.key, event.digest) in ledger.quarantine:  # 2
        return WireError(ErrorKind.WORKER_DIED, f"this request ran at two crashes of {name} and is not tried again")
    if model.state is State.FAILED and model.retry_at > ledger.now:  # 3
        text = f"{name} cannot be loaded at present: {model.reason}"
        return WireError(ErrorKind.LOAD_FAILED, text, retry_after=model.retry_at - ledger.now)
    starting = model.state in PROMISED or model.key in ledger.queue
    if not (policy.autoload and event.autoload) and model.state in WITHOUT_WORKER and not starting:  # 4
        return WireError(ErrorKind.INVALID_REQUEST, f"model {name} is not loaded, and loading on request is off")
    if model.state in WITHOUT_WORKER or model.state is State.SLEEPING:  # 5
        reason = admission.impossible(ledger, model)
        if reason:
            return WireError(ErrorKind.LOAD_FAILED, f"{name} does not fit: {reason}")
    limit = queue.queue_limit(model.entry, policy)
    if limit and len(model.waiting) + len(model.light) >= limit:  # 6
        text = f"{limit} requests wait for {name} already"
        return WireError(ErrorKind.OVERLOADED, text, retry_after=_estimate(ledger, model))
    return None


def _estimate(ledger: Ledger, model: Model) -> float:
    ahead = [other for other in ledger.queue.values() if other is not model and other.place < model.place]
    return queue.estimate(model, ahead, ledger.policy)


def answered(ledger: Ledger, event: RequestAnswered) -> None:
    """The first byte went out: no retry from now on, and the swap that led to it is done."""
    request = ledger.requests.get(event.request)
    if request is None:
        return
    request.answered = True
    model = request.model
    if model.swap_unanswered:
        model.swap_unanswered = False
        ledger.workers_changed = True
    if request.crashes:
        ledger.touch(model)


def left(ledger: Ledger, event: RequestLeft) -> None:
    request = ledger.requests.get(event.request)
    if request is None or request.over:
        return
    if request.worker is not None:
        ledger.emit(CancelWork(request.id, request.worker.child))
    ledger.forget(request)


def ended(ledger: Ledger, event: RequestEnded) -> None:
    """A worker let go of a request. What a worker says that does not hold it any more is ignored."""
    request = ledger.requests.get(event.request)
    if request is None or request.worker is None or request.worker.child != event.child:
        return
    worker, model = request.worker, request.model
    ledger.release(request)
    if request.over:
        del ledger.requests[request.id]
    elif event.parked:
        request.parked = True
        request.parking = False
        requeue(ledger, request)
        announce(ledger, model)
    else:
        request.over = True
        del ledger.requests[request.id]
        worker.served += 1
        seconds = ledger.now - request.dispatched
        weight = SERVICE_SMOOTHING if model.service_seconds else 1.0
        model.service_seconds += weight * (seconds - model.service_seconds)
    model.last_used = ledger.now


def expire(ledger: Ledger) -> None:
    """End the requests whose deadline has passed, and those that waited too long for a lease."""
    for request in list(ledger.requests.values()):
        if request.over:
            continue
        if request.deadline is not None and request.deadline <= ledger.now:
            if request.worker is not None:
                ledger.emit(CancelWork(request.id, request.worker.child))
            _expire(ledger, request, ErrorKind.DEADLINE, lambda late: f"not done by its deadline; {_why(late)}")
        elif request.worker is None and request.wait_until is not None and request.wait_until <= ledger.now:
            _expire(ledger, request, ErrorKind.UNAVAILABLE, _waited)


def _expire(ledger: Ledger, request: Request, kind: ErrorKind, words: Callable[[Request], str]) -> None:
    model = request.model
    ledger.record(model.key, "expire", f"request {request.id} waited {ledger.now - request.arrived:.1f} s")
    ledger.end(request, WireError(kind, words(request), retry_after=_estimate(ledger, model)))


def _waited(request: Request) -> str:
    return f"no free place within the wait limit; {_why(request)}"


def _why(request: Request) -> str:
    model = request.model
    if request.worker is not None:
        return "it was running"
    return model.blocked or f"the model is {model.state.replace('_', ' ')}"

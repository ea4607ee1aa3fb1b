"""The life of worker processes: started or taken from the spares, told to load, stopped, replaced."""

from __future__ import annotations

from router.scheduling.effects import Kill, ReadMemory, SendLoad, SendWakeup, Spawn, Stop
from router.scheduling.events import Child, ExitReason
from router.scheduling.ledger import Ledger
from router.scheduling.liveness import ANSWER, PROGRESS, Watch
from router.scheduling.records import DrainCause, Model, Urge, Worker
from router.scheduling.states import State, Trigger

READING_PATIENCE = 3.0
"""Seconds that a load waits for a settled reading of free memory."""

SPARE_STOP_BUDGET = 5.0

EXIT_REASONS = {
    DrainCause.SWAP: ExitReason.EVICTED,
    DrainCause.UNLOAD: ExitReason.ASKED,
    DrainCause.RECYCLE: ExitReason.ASKED,
    DrainCause.REMOVED: ExitReason.ASKED,
}


def spawn(ledger: Ledger, model: Model | None) -> Worker:
    """Start a process in the first free place."""
    taken = {child.name for child in ledger.workers}
    place = next(name for number in range(1, len(taken) + 2) if (name := f"w{number}") not in taken)
    ledger.epoch += 1
    worker = Worker(
        child=Child(place, ledger.epoch),
        model=model,
        born=ledger.now,
        watch=Watch(slowest=model.slowest if model else {}, heard=ledger.now),
    )
    worker.watch.expect(PROGRESS, ledger.now)
    ledger.workers[worker.child] = worker
    ledger.workers_changed = True
    watch_over(ledger, worker)
    ledger.emit(Spawn(worker.child, model.key if model else None))
    return worker


def watch_over(ledger: Ledger, worker: Worker) -> None:
    """Set the alarm at which this worker's signs of life are looked at, unless one will come sooner.

    Each sign moves the time on, several times a second: the next look sets the alarm for what is true then.
    """
    times = [worker.watch.next_verdict(ledger.policy.wedge_after)]
    if worker.connected and worker.queried is None:
        times.append(worker.watch.heard + ledger.policy.query_interval)
    at = min((time for time in times if time is not None), default=None)
    if at is not None and not ledger.now < worker.look_at <= at:
        ledger.alarms.at(at)
        worker.look_at = at


def spares(ledger: Ledger) -> list[Worker]:
    return [worker for worker in ledger.workers.values() if worker.model is None and worker.stopping is None]


def start(ledger: Ledger, model: Model, reason: str) -> None:
    """Reserve memory for a model and give it a worker: a connected spare where that is possible."""
    ledger.move(model, Trigger.LOAD, reason)
    ledger.queue.pop(model.key, None)
    spare = max(spares(ledger), key=lambda worker: worker.connected, default=None)
    if spare is not None and model.entry.default_environment:
        worker = spare
        worker.model = model
        worker.watch.slowest = model.slowest
        model.swap_unanswered = True
        ledger.workers_changed = True
    else:
        worker = spawn(ledger, model)
    model.worker = worker
    model.started = ledger.now
    model.blocked = ""
    model.place = 0
    model.holds.clear()
    worker.threads = model.entry.reserved_threads or ledger.policy.threads
    ledger.reserve(worker, model.entry.needs)
    ledger.record(model.key, "load", reason)
    if ledger.policy.budget and model.entry.needs and not model.failures:
        model.reading_until = ledger.now + READING_PATIENCE
        ledger.alarms.at(model.reading_until)
        ledger.emit(ReadMemory())
    load_if_possible(ledger, model)


def load_if_possible(ledger: Ledger, model: Model) -> None:
    """Tell the worker to load, once it is connected and no reading of memory is awaited."""
    worker = model.worker
    if model.state is State.SPAWNING and worker and worker.connected and model.reading_until is None:
        ledger.move(model, Trigger.CONNECTED, "its worker is connected")
        worker.watch.expect(PROGRESS, ledger.now)
        watch_over(ledger, worker)
        ledger.emit(SendLoad(worker.child, model.key))


def wake(ledger: Ledger, model: Model, reason: str) -> None:
    """Reserve the memory of a sleeping model again and wake it."""
    worker = model.worker
    assert worker is not None
    ledger.move(model, Trigger.WAKE, reason)
    ledger.queue.pop(model.key, None)
    model.started = ledger.now
    model.blocked = ""
    model.place = 0
    ledger.reserve(worker, model.entry.needs)
    worker.watch.expect(PROGRESS, ledger.now)
    watch_over(ledger, worker)
    ledger.record(model.key, "wake", reason)
    call(ledger, worker)


def call(ledger: Ledger, worker: Worker) -> None:
    worker.called = ledger.now
    ledger.emit(SendWakeup(worker.child))


def ready(ledger: Ledger, model: Model) -> None:
    """The weights are in memory."""
    seconds = ledger.now - model.started
    ledger.move(model, Trigger.LOADED, f"loaded in {seconds:.2f} s")
    model.load_seconds = seconds
    model.ready_at = ledger.now
    model.turn_seq = ledger.number()
    model.last_used = ledger.now
    model.urge = Urge.NONE
    model.suppressed = False
    model.must_evict = 0
    model.awaited = ()
    model.memory_retried = False
    model.turn = False
    if model.failures:
        ledger.alarms.at(model.ready_at + ledger.policy.stable_after)
    for request in model.waiting:
        request.failed_loads = 0


def stop(ledger: Ledger, model: Model, reason: ExitReason, why: str) -> None:
    """Stop a model's worker; the memory stays reserved until the process is reaped."""
    worker = model.worker
    assert worker is not None
    ledger.move(model, Trigger.STOP, why)
    clear_drain(model)
    model.reading_until = None
    ledger.record(model.key, "stop", why)
    dismiss(ledger, worker, reason)


def dismiss(ledger: Ledger, worker: Worker, reason: ExitReason) -> None:
    """Walk the stop ladder with a worker."""
    budget = worker.model.entry.stop_timeout if worker.model else SPARE_STOP_BUDGET
    worker.stopping = reason
    worker.queried = None
    ledger.workers_changed = True
    ledger.emit(Stop(worker.child, reason, budget))


def kill_wedged(ledger: Ledger, worker: Worker, why: str) -> None:
    """End a worker that shows no sign of life; what it ran is sent to the next one once it is reaped."""
    model = worker.model
    if model is not None and model.worker is worker:
        ledger.move(model, Trigger.STOP, why)
        clear_drain(model)
        model.reading_until = None
        ledger.record(model.key, "replace", why)
    worker.stopping = ExitReason.WEDGED
    worker.queried = None
    ledger.workers_changed = True
    ledger.emit(Kill(worker.child, ExitReason.WEDGED, dump=True))


def clear_drain(model: Model) -> None:
    model.drain = None
    model.drain_before = 0
    model.park_at = None
    model.park_sent = False


def answer_query(worker: Worker, now: float) -> None:
    worker.queried = None
    worker.watch.satisfied(ANSWER, now)

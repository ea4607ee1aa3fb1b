"""What follows from the end of a process: who is retried, who gets an error, when the next one starts."""

from __future__ import annotations

from protocol.errors import ErrorKind, ExitCode, WireError
from router.scheduling import backoff
from router.scheduling.dispatch import announce, requeue
from router.scheduling.events import ExitReason, ExitReport
from router.scheduling.ledger import Ledger
from router.scheduling.records import Failure, Model, Worker
from router.scheduling.states import State, Trigger
from router.scheduling.workers import clear_drain

LOADS_PER_REQUEST = 2
"""A request waits for so many loads that fail; then it gets the reason."""

FAILURES_KEPT = 100

_LOADING = (State.SPAWNING, State.LOADING, State.WAKING)


def exited(ledger: Ledger, worker: Worker, report: ExitReport) -> None:
    """A process was reaped: give its memory back, decide about its model and about what it ran."""
    del ledger.workers[worker.child]
    ledger.workers_changed = True
    ledger.room_changed = True
    model = worker.model
    if model is None:
        if worker.stopping is None:
            ledger.spare_failures += 1
            ledger.spare_retry_at = ledger.now + backoff.pause(ledger.spare_failures + 1, ledger.policy, ledger.random)
            ledger.alarms.at(ledger.spare_retry_at)
        return
    if model.worker is not worker:  # it was stuck, and the model went on without it
        if model.state is State.STUCK and ledger.models.get(model.key) is model:
            ledger.move(model, Trigger.EXITED, "its stuck worker has gone at last")
        return
    asked = worker.stopping
    if asked not in (None, ExitReason.WEDGED):
        ledger.move(model, Trigger.EXITED, model.reason)
        _detach(ledger, model, ExitReport(asked, report.exit_code, report.message, report.stderr))
        _retry_or_end(ledger, worker, "the worker was stopped")
        return
    if asked is ExitReason.WEDGED:
        report = ExitReport(ExitReason.WEDGED, report.exit_code, model.reason, report.stderr)
    _died(ledger, model, worker, report)


def _detach(ledger: Ledger, model: Model, report: ExitReport) -> None:
    model.worker = None
    model.exit = report
    model.reading_until = None
    model.swap_unanswered = False
    model.idle_since = None
    model.holds.clear()
    clear_drain(model)
    ledger.busy_changed = True


def _died(ledger: Ledger, model: Model, worker: Worker, report: ExitReport) -> None:
    """A worker ended by itself, or was killed for being wedged."""
    words = describe(report)
    if model.state not in _LOADING:
        _crashed(ledger, model, worker, report, words, loading=False)
    elif _is_out_of_memory(report) and not model.memory_retried and _may_evict_more(ledger, model):
        _load_with_more_memory(ledger, model, worker, report, words)
    elif _is_load_error(report) or _is_out_of_memory(report):
        _cannot_be_loaded(ledger, model, worker, report, words)
    else:
        _crashed(ledger, model, worker, report, words, loading=True)


def _load_with_more_memory(ledger: Ledger, model: Model, worker: Worker, report: ExitReport, words: str) -> None:
    """Once per load: another model is evicted, then it is tried again."""
    model.memory_retried = True
    model.must_evict = 1
    model.retry_at = 0.0
    ledger.move(model, Trigger.CRASHED, words)
    _detach(ledger, model, report)
    ledger.record(model.key, "retry", f"{words}: another model is evicted, then it loads once more")
    _retry_or_end(ledger, worker, words)


def _cannot_be_loaded(ledger: Ledger, model: Model, worker: Worker, report: ExitReport, words: str) -> None:
    """The worker said why it cannot load: waiting would not help those who wait."""
    model.memory_retried = False
    _count(ledger, model, worker, loading=True)
    cooldown, delay = _delay(ledger, model)
    model.retry_at = ledger.now + delay
    ledger.move(model, Trigger.FAILED, words)
    _detach(ledger, model, report)
    ledger.record(model.key, "cooldown" if cooldown else "fail", f"{words}; next start in {delay:.1f} s")
    _retry_or_end(ledger, worker, words)
    ledger.end_waiting(model, ErrorKind.LOAD_FAILED, words, delay)


def _crashed(ledger: Ledger, model: Model, worker: Worker, report: ExitReport, words: str, *, loading: bool) -> None:
    """Restart after a pause for those who may be tried again, or open a cooldown."""
    _strike(ledger, model, worker, loading, words)
    cooldown, delay = _delay(ledger, model)
    model.retry_at = ledger.now + delay
    ledger.alarms.at(model.retry_at)
    ledger.move(model, Trigger.FAILED if cooldown else Trigger.CRASHED, words)
    _detach(ledger, model, report)
    ledger.record(model.key, "cooldown" if cooldown else "backoff", f"{words}; next start in {delay:.1f} s")
    _retry_or_end(ledger, worker, words)
    if cooldown:
        ledger.end_waiting(model, ErrorKind.UNAVAILABLE, f"{words}; paused after {len(model.failures)} failures", delay)
    elif loading:
        _give_up_after_loads(ledger, model, words)
    announce(ledger, model)


def _delay(ledger: Ledger, model: Model) -> tuple[bool, float]:
    """Whether a cooldown opens, and the seconds until the next start."""
    failures = len(model.failures)
    if backoff.cooled_off(failures, ledger.policy):
        return True, ledger.policy.cooldown
    return False, backoff.pause(failures, ledger.policy, ledger.random)


def _is_load_error(report: ExitReport) -> bool:
    codes = (ExitCode.LOAD_FAILED, ExitCode.REFUSED, ExitCode.USAGE)
    return report.reason is ExitReason.LOAD_ERROR or report.exit_code in codes


def _is_out_of_memory(report: ExitReport) -> bool:
    return report.reason is ExitReason.OUT_OF_MEMORY or report.exit_code == ExitCode.OUT_OF_MEMORY


def _may_evict_more(ledger: Ledger, model: Model) -> bool:
    return any(not other.pin for other in ledger.resident() if other is not model)


def _count(ledger: Ledger, model: Model, worker: Worker, *, loading: bool) -> None:
    if not loading and backoff.stable(model.ready_at, ledger.now, ledger.policy):
        model.failures.clear()
    suspects = frozenset(worker.leases)
    model.failures.append(Failure(ledger.now, suspects))
    del model.failures[:-FAILURES_KEPT]


def _strike(ledger: Ledger, model: Model, worker: Worker, loading: bool, words: str) -> None:
    """Count the crash, unless a request that ran at the last one ran at this one too: then neither counts."""
    guilty: set[int] = set()
    for request in worker.leases.values():
        if request.needs_weights:
            request.crashes += 1
            if request.crashes > 1:
                guilty.add(request.id)
                ledger.isolate(request)
    if not guilty:
        _count(ledger, model, worker, loading=loading)
        return
    model.failures = [failure for failure in model.failures if not failure.suspects & guilty]
    ledger.record(model.key, "quarantine", f"{len(guilty)} request(s) ran at two crashes; {words}")


def _retry_or_end(ledger: Ledger, worker: Worker, words: str) -> None:
    """Everything the worker held goes back into the line, if no byte of its answer was sent and it may be retried."""
    for request in list(worker.leases.values()):
        ledger.release(request)
        if request.over:
            ledger.requests.pop(request.id, None)
        elif request.crashes > 1:
            text = f"{words}; the request ran at two crashes of this model and is not tried again"
            ledger.end(request, WireError(ErrorKind.WORKER_DIED, text))
        elif request.answered:
            ledger.end(request, WireError(ErrorKind.WORKER_DIED, words))
        else:
            requeue(ledger, request)


def _give_up_after_loads(ledger: Ledger, model: Model, words: str) -> None:
    for request in [*model.waiting, *model.light]:
        request.failed_loads += 1
        if request.failed_loads >= LOADS_PER_REQUEST:
            retry_after = max(0.0, model.retry_at - ledger.now)
            ledger.end(request, WireError(ErrorKind.LOAD_FAILED, words, retry_after=retry_after))


def stuck(ledger: Ledger, worker: Worker) -> None:
    """SIGKILL did not end the process: its memory stays charged, and everybody goes on without it."""
    worker.stuck = True
    ledger.workers_changed = True
    ledger.room_changed = True
    model = worker.model
    if model is None or model.worker is not worker:
        return
    ledger.move(model, Trigger.STUCK, f"its worker {worker.child} cannot be killed")
    _detach(ledger, model, ExitReport(worker.stopping or ExitReason.WEDGED, 0, model.reason))
    ledger.record(model.key, "stuck", model.reason)
    _retry_or_end(ledger, worker, model.reason)


def describe(report: ExitReport) -> str:
    """One line for people: how the process ended, and the last thing it said."""
    text = report.message or (
        f"the worker was ended by signal {-report.exit_code}"
        if report.exit_code < 0
        else f"the worker exited with code {report.exit_code}"
    )
    last = next((line.strip() for line in reversed(report.stderr) if line.strip()), "")
    return text if not last or last in text or text in last else f"{text} ({last})"

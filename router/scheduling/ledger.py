"""The tables of the scheduler, and the only ways to change a state, grant a lease or end a request.

The policies read the ledger and call these methods; effects collect here in the order in which they must be run.
"""

from __future__ import annotations

import random
from collections import OrderedDict, deque
from collections.abc import Iterator

from protocol.errors import ErrorKind, WireError
from router.scheduling.alarms import Alarms
from router.scheduling.effects import Dispatch, Effect, EndRequest, ModelChanged, Notify, Phase, Record
from router.scheduling.events import Child
from router.scheduling.model import Needs, Policy
from router.scheduling.queue import insert
from router.scheduling.records import Model, Request, Urge, Worker
from router.scheduling.states import IllegalTransition, Trigger, follow

DECISIONS_KEPT = 200
QUARANTINE_SIZE = 1024


class Ledger:
    def __init__(self, policy: Policy, source: random.Random) -> None:
        self.policy = policy
        self.random = source
        self.now = 0.0
        self.models: dict[str, Model] = {}
        self.workers: dict[Child, Worker] = {}
        self.requests: dict[int, Request] = {}
        self.queue: dict[str, Model] = {}
        """Models that are wanted and have no place in memory, in no order."""
        self.dirty: dict[str, Model] = {}
        """Models about which something changed since they were looked at."""
        self.changed: set[str] = set()
        """Models about which something changed that others see, since one of them looked."""
        self.quarantine: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.alarms = Alarms()
        self.decisions: deque[tuple[float, Record]] = deque(maxlen=DECISIONS_KEPT)
        self.effects: list[Effect] = []
        self.busy_changed = False
        self.workers_changed = False
        self.room_changed = False
        self.stop_deadline: float | None = None
        self.epoch = 0
        """Processes started so far."""
        self.spare_failures = 0
        self.spare_retry_at = 0.0
        self._sequence = 0

    # Numbers and effects

    def number(self) -> int:
        """Larger than any before: the order of arrival."""
        self._sequence += 1
        return self._sequence

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)

    def record(self, model: str, decision: str, reason: str) -> None:
        entry = Record(model, decision, reason)
        self.decisions.append((self.now, entry))
        self.effects.append(entry)

    def notify(self, request: Request, phase: Phase, position: int = 0, progress: float = 0.0) -> None:
        """Tell the client of a request, unless it was told the same."""
        notice = (phase.value, round(100 * progress) if progress else position)
        if request.told != notice and not request.over:
            request.told = notice
            self.effects.append(Notify(request.id, phase, position, progress))

    # States

    def move(self, model: Model, trigger: Trigger, reason: str) -> None:
        """Follow the table. Raises `IllegalTransition`, and then nothing has changed."""
        target = follow(model.state, trigger)
        if target is None:
            story = tuple(f"{at:.3f} {line}" for at, line in model.story)
            raise IllegalTransition(model.key, model.state, trigger, story)
        model.story.append((self.now, f"{model.state} -{trigger}-> {target}: {reason}"))
        model.state = target
        model.since = self.now
        model.reason = reason
        self.room_changed = True
        self.touch(model)
        self.effects.append(ModelChanged(model.key))

    def touch(self, model: Model) -> None:
        """Something changed that others see, and that decisions may depend on."""
        self.dirty[model.key] = model
        self.changed.add(model.key)

    def reserve(self, worker: Worker, needs: Needs) -> None:
        worker.needs = needs
        worker.charged = True
        self.room_changed = True

    def unreserve(self, worker: Worker) -> None:
        worker.needs = ()
        worker.charged = False
        self.room_changed = True

    def reserved(self) -> Iterator[Worker]:
        """Workers whose memory is reserved, stuck ones too."""
        return (worker for worker in self.workers.values() if worker.charged)

    def resident(self) -> list[Model]:
        return [model for model in self.models.values() if model.resident]

    # Leases and ends

    def enqueue(self, request: Request) -> None:
        """Put a request into its model's line, at the place of its priority and arrival."""
        model = request.model
        insert(model.waiting if request.needs_weights else model.light, request)
        model.newcomers.append(request)
        model.idle_since = None
        self.touch(model)

    def unqueue(self, request: Request) -> None:
        model = request.model
        line = model.waiting if request.needs_weights else model.light
        if request in line:
            line.remove(request)
            self.room_changed = True
            self.touch(model)

    def grant(self, request: Request, worker: Worker) -> None:
        """Send a request to a worker: from now on it holds a lease there. It must not be in a line any more."""
        model = request.model
        request.worker = worker
        request.dispatched = self.now
        request.parking = False
        request.missing = 0
        worker.leases[request.id] = request
        if request.needs_weights:
            worker.heavy += 1
            self.busy_changed |= worker.heavy == 1
        model.last_used = self.now
        model.idle_since = None
        self.changed.add(model.key)
        self.notify(request, Phase.RUNNING)
        self.effects.append(Dispatch(request.id, worker.child))

    def release(self, request: Request) -> None:
        """Take the lease back: the worker holds the request no longer."""
        worker = request.worker
        if worker is None:
            return
        del worker.leases[request.id]
        if request.needs_weights:
            worker.heavy -= 1
            self.busy_changed |= worker.heavy == 0
            self.workers_changed |= worker.heavy == 0
        request.worker = None
        self.room_changed |= not worker.leases
        self.touch(request.model)

    def end(self, request: Request, error: WireError) -> None:
        """End a request with an error for its client. A worker that still runs it keeps its lease until it says so."""
        self.effects.append(EndRequest(request.id, error))
        self.forget(request)

    def forget(self, request: Request) -> None:
        """The client has its end, or nobody waits for it any more."""
        request.over = True
        self.unqueue(request)
        if request.worker is None:
            self.requests.pop(request.id, None)

    def end_waiting(self, model: Model, kind: ErrorKind, message: str, retry_after: float = 0.0) -> None:
        """End every request without a lease, and give up what else wanted the model."""
        for request in [*model.waiting, *model.light]:
            self.end(request, WireError(kind, message, retry_after=retry_after))
        model.urge = Urge.NONE
        self.touch(model)

    def isolate(self, request: Request) -> None:
        """Never again run what ran at two crashes."""
        if request.digest:
            self.quarantine[(request.model.key, request.digest)] = None
            if len(self.quarantine) > QUARANTINE_SIZE:
                self.quarantine.popitem(last=False)

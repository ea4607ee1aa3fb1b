"""The scheduler: takes an event, returns what is to be done. It does no I/O and has no clock.

`handle` lets the event change the ledger, then settles: it looks at every model about which something changed, plans
the queue, and repeats until nothing changes any more. Decisions follow from what is the case, not from what has just
happened, so that an event which came late or twice cannot be missed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from protocol.status import UpdateStatus, WorkerState
from router.scheduling import (
    admission,
    backoff,
    commands,
    crash,
    dispatch,
    events,
    governor,
    idle,
    queue,
    reading,
    requests,
    spares,
    swap,
    views,
    watchdog,
    workers,
)
from router.scheduling.effects import Effect, ModelChanged, SendThreads, SetTimer
from router.scheduling.events import Child, Event, ExitReason, ExitReport
from router.scheduling.ledger import Ledger
from router.scheduling.liveness import PROGRESS
from router.scheduling.model import Policy
from router.scheduling.records import Model, Worker
from router.scheduling.states import PROMISED, WITHOUT_WORKER, State, Trigger

ROUNDS = 100
"""Settling ends long before; more rounds would mean two decisions that undo one another."""

UNSETTLED_PAUSE = 1.0
"""Seconds until the next look after that: a bug then costs some work, and not the service."""


class Scheduler:
    """Owned by one task. `source` makes the jitter of restarts."""

    def __init__(self, policy: Policy, source: random.Random | None = None) -> None:
        self._ledger = Ledger(policy, source or random.Random())
        self._views: dict[str, views.ModelView] = {}
        """What others saw last of each model, unless it has changed since."""
        self._listed: tuple[views.ModelView, ...] = ()
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            events.RequestArrived: lambda event: requests.arrived(self._ledger, event),
            events.RequestAnswered: lambda event: requests.answered(self._ledger, event),
            events.RequestLeft: lambda event: requests.left(self._ledger, event),
            events.RequestEnded: lambda event: requests.ended(self._ledger, event),
            events.LoadAsked: lambda event: commands.load(self._ledger, event),
            events.UnloadAsked: lambda event: commands.unload(self._ledger, event),
            events.PinAsked: lambda event: commands.pin(self._ledger, event),
            events.ModelsChanged: lambda event: commands.configure(self._ledger, event),
            events.StopAsked: lambda event: commands.stop_all(self._ledger, event),
            events.ChildSpawned: self._spawned,
            events.SpawnFailed: self._spawn_failed,
            events.ChildConnected: self._connected,
            events.ChildReported: self._reported,
            events.ChildProgressed: self._progressed,
            events.ChildExited: self._exited,
            events.ChildStuck: self._stuck,
            events.TimerFired: lambda event: self._ledger.alarms.fired(),
            events.MemoryRead: lambda event: reading.read(self._ledger, event),
            events.MemoryMeasured: self._measured,
        }

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take in what happened at `now` (monotonic seconds); return what is to be done, in order.

        Raises `IllegalTransition` for an event that cannot happen in the state of its model.
        """
        ledger = self._ledger
        ledger.now = now
        ledger.effects = []
        self._handlers[type(event)](event)
        self._settle()
        return ledger.effects

    # What others may know

    def model(self, key: str) -> views.ModelView | None:
        model = self._ledger.models.get(key)
        return None if model is None else self._view(key, model)

    def models(self) -> tuple[views.ModelView, ...]:
        """The view of a model about which nothing has changed is the same object as before, as is the whole then."""
        if self._ledger.changed or len(self._listed) != len(self._ledger.models):
            self._listed = tuple([self._view(key, model) for key, model in self._ledger.models.items()])
        return self._listed

    def _view(self, key: str, model: Model) -> views.ModelView:
        if self._ledger.changed:
            self._listed = ()
        for changed in self._ledger.changed:
            self._views.pop(changed, None)
        self._ledger.changed.clear()
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = views.model_view(model)
        return view

    def child(self, key: str) -> Child | None:
        """The model's worker, without the cost of a view."""
        model = self._ledger.models.get(key)
        return model.worker.child if model is not None and model.worker else None

    def waiting(self) -> list[views.WaitingView]:
        return views.waiting_views(self._ledger)

    def queue(self) -> list[views.QueuedModel]:
        return views.queue_view(self._ledger)

    def decisions(self) -> list[views.Decision]:
        return views.decisions(self._ledger)

    @property
    def stopping(self) -> bool:
        return self._ledger.stop_deadline is not None

    @property
    def stopped(self) -> bool:
        """Whether the router may end: it was asked to, and no child is left but those that cannot be killed."""
        return self.stopping and all(worker.stuck for worker in self._ledger.workers.values())

    # Events from children

    def _worker(self, child: Child) -> Worker | None:
        return self._ledger.workers.get(child)

    def _spawned(self, event: events.ChildSpawned) -> None:
        worker = self._worker(event.child)
        if worker is not None:
            worker.pid = event.pid

    def _spawn_failed(self, event: events.SpawnFailed) -> None:
        worker = self._worker(event.child)
        if worker is not None:
            report = ExitReport(ExitReason.CRASHED, 1, f"the worker could not be started: {event.message}")
            crash.exited(self._ledger, worker, report)

    def _connected(self, event: events.ChildConnected) -> None:
        worker = self._worker(event.child)
        if worker is None or worker.stopping is not None:
            return
        now = self._ledger.now
        worker.connected = True
        worker.watch.heard = now
        worker.watch.satisfied(PROGRESS, now)
        workers.watch_over(self._ledger, worker)
        if worker.model is None:
            self._ledger.spare_failures = 0
            self._ledger.workers_changed = True
        else:
            workers.load_if_possible(self._ledger, worker.model)

    def _reported(self, event: events.ChildReported) -> None:
        worker = self._worker(event.child)
        if worker is None or worker.stopping is not None:
            return
        watchdog.heard(self._ledger, worker, event.status)
        if worker.model is not None:
            self._follow(worker.model, worker, event.status)

    def _follow(self, model: Model, worker: Worker, status: UpdateStatus) -> None:
        """Bring the model's state in line with what its worker says. Reports that came late are recognised by it."""
        ledger, state, said = self._ledger, model.state, status.state
        if said is WorkerState.READY:
            if state in (State.LOADING, State.WAKING):
                workers.ready(ledger, model)
            elif state is State.FALLING_ASLEEP:
                ledger.move(model, Trigger.DECLINED, status.reason or "it still held work")
                model.idle_since = None
            elif state is State.SLEEPING:  # awake without having been asked
                ledger.reserve(worker, model.entry.needs)
                ledger.move(model, Trigger.WAKE, "it was found awake")
                model.started = ledger.now
                workers.ready(ledger, model)
            elif model.entry.max_memory:
                ledger.touch(model)
        elif said is WorkerState.SLEEPING:
            if state is State.FALLING_ASLEEP or (state is State.READY and not worker.heavy):
                ledger.move(model, Trigger.ASLEEP, status.reason or model.reason)
                ledger.unreserve(worker)
            elif state is State.READY:  # work overtook `Sleep`: it wakes the worker, whose memory stays reserved
                ledger.move(model, Trigger.WAKE, "work came while it fell asleep")
                model.started = ledger.now
                worker.watch.expect(PROGRESS, ledger.now)
        elif said is WorkerState.WAKING and state is State.SLEEPING:
            ledger.reserve(worker, model.entry.needs)
            ledger.move(model, Trigger.WAKE, "it was found waking")
            model.started = ledger.now
        elif said is WorkerState.LOADING or said is WorkerState.WAKING:
            dispatch.announce(ledger, model, status.progress)

    def _progressed(self, event: events.ChildProgressed) -> None:
        worker = self._worker(event.child)
        if worker is not None:
            worker.watch.progressed(self._ledger.now)
            workers.watch_over(self._ledger, worker)

    def _exited(self, event: events.ChildExited) -> None:
        worker = self._worker(event.child)
        if worker is not None:
            crash.exited(self._ledger, worker, event.report)
            reading.again(self._ledger)

    def _stuck(self, event: events.ChildStuck) -> None:
        worker = self._worker(event.child)
        if worker is not None and worker.stopping is not None:
            crash.stuck(self._ledger, worker)

    def _measured(self, event: events.MemoryMeasured) -> None:
        model = self._ledger.models.get(event.model)
        if model is None:
            return
        model.entry = event.entry
        if model.worker is not None and model.worker.charged:
            self._ledger.reserve(model.worker, event.entry.needs)
        self._ledger.touch(model)

    # Settling

    def _settle(self) -> None:
        ledger = self._ledger
        if ledger.alarms.due(ledger.now):
            self._tick()
        for _ in range(ROUNDS):
            if ledger.dirty:
                self._look_at_dirty()
            elif ledger.room_changed:
                ledger.room_changed = False
                admission.plan(ledger)
            elif not self._look_around():
                break
        else:
            ledger.record("", "unsettled", f"{ROUNDS} rounds of decisions that undo one another; looking again soon")
            ledger.alarms.at(ledger.now + UNSETTLED_PAUSE)
        if ledger.busy_changed:
            ledger.busy_changed = False
            self._share_cores()
        at = ledger.alarms.arm()
        if at is not None:
            ledger.emit(SetTimer(at))

    def _tick(self) -> None:
        """Some alarm has come: look at everything that depends on the time."""
        ledger = self._ledger
        requests.expire(ledger)
        reading.expire(ledger)
        watchdog.look(ledger)
        ledger.room_changed = True
        ledger.workers_changed = True
        for model in ledger.models.values():
            if model.state is State.BACKOFF and model.retry_at <= ledger.now and not model.wanted:
                ledger.move(model, Trigger.COOLED, model.reason)
            elif model.state is State.READY and backoff.stable(model.ready_at, ledger.now, ledger.policy):
                model.failures.clear()
            if model.worker is not None or model.wanted:
                ledger.touch(model)
            if model.news_at is not None and model.news_at <= ledger.now:
                model.news_at = None
                dispatch.announce(ledger, model)

    def _look_at_dirty(self) -> None:
        ledger = self._ledger
        dirty, ledger.dirty = ledger.dirty, {}
        for model in dirty.values():
            if ledger.stop_deadline is None:
                idle.retire(ledger, model)
            dispatch.dispatch(ledger, model)
            swap.advance(ledger, model)
            if ledger.stop_deadline is None:
                idle.advance(ledger, model)
            self._enlist(model)
            dispatch.greet(ledger, model)
            if model.gone and model.state in WITHOUT_WORKER and not model.busy:
                ledger.models.pop(model.key, None)
                ledger.changed.add(model.key)
                ledger.emit(ModelChanged(model.key))

    def _enlist(self, model: Model) -> None:
        """Put a wanted model without a place in memory into the queue, and take out one that is not wanted."""
        ledger = self._ledger
        waits = model.wanted and model.state is not State.READY and model.state not in PROMISED
        waits = waits and ledger.stop_deadline is None
        if waits and model.key not in ledger.queue:
            ledger.queue[model.key] = model
            model.place = len(ledger.queue) - 1
            first = queue.first_come(model)
            model.queued_since = first.arrived if first else ledger.now
            # A request that a whole turn of its model did not reach waits from that turn on: others have had none.
            model.queued_seq = max(first.seq, model.turn_seq) if first else ledger.number()
            ledger.room_changed = True
        elif not waits and ledger.queue.pop(model.key, None) is not None:
            model.blocked = ""
            model.place = 0
            model.turn = False
            model.coming = False
            ledger.workers_changed = True
            model.must_evict = 0
            model.awaited = ()
            ledger.room_changed = True

    def _look_around(self) -> bool:
        """What concerns all workers together; say whether there is more to settle."""
        ledger = self._ledger
        if ledger.stop_deadline is not None:
            commands.advance_stop(ledger)
        if ledger.workers_changed:
            ledger.workers_changed = False
            spares.refill(ledger)
            idle.go_home(ledger)
        return bool(ledger.dirty or ledger.room_changed or ledger.workers_changed)

    def _share_cores(self) -> None:
        ledger = self._ledger
        busy = {
            worker.model.key: worker
            for worker in ledger.workers.values()
            if worker.model is not None and worker.heavy and worker.stopping is None
        }
        claims = [
            governor.Claim(key, worker.model.entry.reserved_threads, worker.model.entry.on_gpu)
            for key, worker in busy.items()
            if worker.model is not None
        ]
        for key, threads in governor.shares(claims, ledger.policy.threads).items():
            worker = busy[key]
            if worker.threads != threads:
                worker.threads = threads
                ledger.emit(SendThreads(worker.child, threads))

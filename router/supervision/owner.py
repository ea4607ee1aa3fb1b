"""The single task that owns the scheduler: feeds it events, runs its effects, routes output to streams."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, get_args

import msgspec

from protocol import codec
from protocol.codec import Work
from protocol.control import Cancel, EndReasoning, Park, QueryStatus, SetThreads, Sleep, Wakeup
from protocol.errors import ErrorKind, WireError
from protocol.generate import Failed, Parked, StepOutput
from protocol.load import Load, Loaded, ModelInfo
from protocol.status import UpdateStatus
from router.scheduling import effects, events, views
from router.scheduling.events import Child, ExitReason, ExitReport
from router.scheduling.model import ModelEntry, Policy
from router.scheduling.scheduler import Scheduler
from router.scheduling.states import IllegalTransition, State
from router.supervision.activity import ActivityMeter
from router.supervision.announcer import Announcer
from router.supervision.childlog import ChildLog
from router.supervision.environment import worker_environment
from router.supervision.measuring import Measurements
from router.supervision.memory import MemoryReader
from router.supervision.news import NewsHub
from router.supervision.nursery import Nursery
from router.supervision.process import Command, python_command
from router.supervision.requests import RequestBook
from router.supervision.state import Residents, StateFolder
from router.supervision.worker_table import WorkerRecord, WorkerTable
from router.transport.link import ChildGone
from router.transport.stream import RequestStream

log = logging.getLogger("llamaherd.supervision")

LOOK_INTERVAL = 1.0
"""Seconds between two looks at processes that start or load, and at streams that are silent."""
HEARTBEAT = 30.0
STOP_BUDGET = 5.0

_ANSWERS = get_args(codec.Answer)


class Plans(Protocol):
    """What supervision needs of the configuration, by load key."""

    def load(self, key: str) -> Load:
        """What a worker is told to load. Raises `KeyError` for a model that is not configured any more."""
        ...

    def environment(self, key: str) -> dict[str, str]:
        """What a worker's environment has beside that of every worker."""
        ...

    def entries(self) -> tuple[ModelEntry, ...]: ...


Observer = Callable[[events.Event, Sequence[effects.Effect]], None]

WorkerCommand = Callable[[Mapping[str, str]], Command]
"""Makes the command of a worker from the variables of its preset."""


def real_worker(extra: Mapping[str, str]) -> Command:
    return python_command("worker", worker_environment(os.environ, extra.items()))


class Owner:
    """Everything about models and their workers goes through here, one event after the other.

    All methods are called on the event loop. None of them waits, but for `close`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        nursery: Nursery,
        state: StateFolder | None = None,
        worker_command: WorkerCommand = real_worker,
        heartbeat: float = HEARTBEAT,
        observe: Observer | None = None,
        look_interval: float = LOOK_INTERVAL,
    ) -> None:
        """`heartbeat` is the longest silence in seconds of a stream that shows signs of life. `observe` is called
        with each event and the effects that it has, and counts them.
        """
        self.news = NewsHub()
        self._scheduler = scheduler
        self._nursery = nursery
        self._state = state
        self._worker_command = worker_command
        self._heartbeat = heartbeat
        self._look_interval = look_interval
        self._observe = observe
        self._plans: Plans | None = None
        self._book = RequestBook()
        self._table = WorkerTable()
        self._announcer = Announcer(self.news, self._table)
        self._measurements = Measurements(state)
        self._memory = MemoryReader()
        self._activity = ActivityMeter()
        self._events: deque[events.Event] = deque()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._look_timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._nonce = 0
        self._to_restore = frozenset(state.residents_to_restore()) if state is not None else frozenset()
        self._run: dict[type[Any], Callable[[Any], None]] = {
            effects.Spawn: self._spawn,
            effects.SendLoad: self._send_load,
            effects.SendSleep: lambda effect: self._send(effect.child, Sleep()),
            effects.SendWakeup: lambda effect: self._send(effect.child, Wakeup()),
            effects.SendQuery: self._send_query,
            effects.SendThreads: lambda effect: self._send(effect.child, SetThreads(effect.threads, effect.threads)),
            effects.Stop: lambda effect: self._nursery.stop(effect.child, effect.reason, effect.budget),
            effects.Kill: lambda effect: self._nursery.kill(effect.child, effect.reason, effect.dump),
            effects.Dispatch: self._dispatch,
            effects.CancelWork: lambda effect: self._send(effect.child, Cancel(effect.request)),
            effects.ParkWork: lambda effect: self._send(effect.child, Park(effect.request)),
            effects.EndRequest: lambda effect: self._book.end(effect.request, effect.error),
            effects.Notify: lambda effect: self._book.notify(
                effect.request, effect.phase, effect.position, effect.progress
            ),
            effects.ModelChanged: self._model_changed,
            effects.Record: self._record,
            effects.SetTimer: self._set_timer,
            effects.ReadMemory: lambda effect: self.post(self._memory.read()),
        }

    # For the rest of the router

    @property
    def alive(self) -> bool:
        """Whether the task runs. Once it has failed, nothing is served any more."""
        return self._task is not None and not self._task.done()

    async def open(self) -> None:
        """Start to listen to children and to run."""
        self._nursery.open()
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._work_off(), name="owner")
        self._look_timer = loop.call_later(self._look_interval, self._look)

    def configure(self, plans: Plans, policy: Policy, restart: tuple[str, ...] = ()) -> None:
        """Take a configuration, at the start or after a reload. The first one restores what an unclean end left."""
        self._plans = plans
        entries = self._measurements.configure(plans.entries())
        if self._to_restore:
            entries = tuple(
                msgspec.structs.replace(entry, load_on_startup=True) if entry.key in self._to_restore else entry
                for entry in entries
            )
            self._to_restore = frozenset()
        self._table.forget_models({entry.key for entry in entries})
        self.post(events.ModelsChanged(entries, policy, restart))

    def submit(self, work: Work, stream: RequestStream, arrived: events.RequestArrived) -> None:
        """Take a request: its output, or why there is none, comes through `stream`."""
        if not self.alive:
            stream.fail(WireError(ErrorKind.UNAVAILABLE, "the scheduler has stopped"))
            return
        self._book.add(work, stream)
        self.post(arrived)

    def end_reasoning(self, request: int) -> bool:
        """Make a running request stop to reason and begin its answer. False if no worker holds it."""
        child = self._book.holder(request)
        if child is None:
            return False
        self._send(child, EndReasoning(request))
        return True

    def post(self, event: events.Event) -> None:
        self._events.append(event)
        self._wake.set()

    def view(self, key: str) -> views.ModelView | None:
        return self._scheduler.model(key)

    def models(self) -> list[views.ModelView]:
        return self._scheduler.models()

    def loaded_models(self) -> list[str]:
        """The first name of each model that is loaded, or asleep."""
        return [view.names[0] for view in self.models() if view.status in ("loaded", "sleeping") and view.names]

    def waiting(self) -> list[views.WaitingView]:
        return self._scheduler.waiting()

    def queue(self) -> list[views.QueuedModel]:
        return self._scheduler.queue()

    def decisions(self) -> list[views.Decision]:
        return self._scheduler.decisions()

    def info(self, key: str) -> ModelInfo | None:
        """Facts of a model as its worker reported them when it was loaded last."""
        return self._table.info(key)

    def status(self, key: str) -> UpdateStatus | None:
        """What the model's worker said last; None without a worker."""
        record = self._record_of(key)
        return record.status if record is not None else None

    def pid(self, key: str) -> int:
        """The process id of the model's worker, 0 without one."""
        record = self._record_of(key)
        return record.pid if record is not None else 0

    def log(self, key: str) -> ChildLog | None:
        """The output of the model's worker, or of the spare that became it."""
        record = self._record_of(key)
        return self._nursery.log_of(record.child.name) if record is not None else None

    def workers(self) -> tuple[WorkerRecord, ...]:
        """All worker processes, spares too."""
        return self._table.records()

    async def close(self, drain: float) -> None:
        """Refuse new requests, let running ones end within `drain` seconds, stop and reap all workers.

        May be called again while it runs, with less patience, and when it is done.
        """
        if self.alive:
            self.post(events.StopAsked(time.monotonic() + drain))
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._wind_up(), name="owner's end")
        await asyncio.shield(self._closing)

    async def _wind_up(self) -> None:
        if self._task is not None and not self._task.done():
            stopped = asyncio.ensure_future(self._stopped.wait())
            await asyncio.wait([self._task, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
        for timer in (self._timer, self._look_timer):
            if timer is not None:
                timer.cancel()
        self._look_timer = None
        await self._nursery.close(STOP_BUDGET)
        if self._state is not None and self.alive:
            self._state.save_residents(Residents(clean=True))
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._book.end_all(WireError(ErrorKind.UNAVAILABLE, "the server is stopping"))

    # The task

    async def _work_off(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._events:
                    self._take(self._events.popleft())
        except Exception:
            log.exception("the scheduler has failed: nothing is served any more")
            self._book.end_all(WireError(ErrorKind.INTERNAL, "the scheduler has failed"))
            raise

    def _take(self, event: events.Event) -> None:
        now = time.monotonic()
        try:
            wanted = self._scheduler.handle(event, now)
        except IllegalTransition:
            # It changed nothing; whatever caused it repairs itself with the next status, or is found as wedged.
            log.exception("an event that cannot be: %r", event)
            return
        if isinstance(event, events.ChildExited):
            self._book.lost(event.child)
        elif isinstance(event, events.RequestLeft):
            self._book.left(event.request)
        if self._observe is not None:
            self._observe(event, wanted)
        for effect in wanted:
            self._run[type(effect)](effect)
        if isinstance(event, events.ChildReported):
            self._announce_progress(event.child, now)
        if self._scheduler.stopped:
            self._stopped.set()

    # Effects

    def _send(self, child: Child, message: codec.ToChild) -> None:
        try:
            self._nursery.send(child, message)
        except ChildGone:
            log.debug("%s is gone: %s was not sent", child, type(message).__name__)

    def _spawn(self, effect: effects.Spawn) -> None:
        record = WorkerRecord(effect.child, model=None)
        try:
            extra = self._plans.environment(effect.model) if self._plans and effect.model is not None else {}
            record.pid = self._nursery.spawn(effect.child, self._worker_command(extra), self)
        except (OSError, KeyError) as error:
            self.post(events.SpawnFailed(effect.child, str(error)))
            return
        self._table.add(record)
        self.post(events.ChildSpawned(effect.child, record.pid))

    def _send_load(self, effect: effects.SendLoad) -> None:
        record = self._table.get(effect.child)
        if record is None or self._plans is None:
            return
        record.model = effect.model
        try:
            self._send(effect.child, self._plans.load(effect.model))
        except KeyError:  # a reload has dropped it since
            self._nursery.stop(effect.child, ExitReason.ASKED, 0.0)

    def _send_query(self, effect: effects.SendQuery) -> None:
        self._nonce += 1
        self._send(effect.child, QueryStatus(self._nonce))

    def _dispatch(self, effect: effects.Dispatch) -> None:
        work = self._book.assign(effect.request, effect.child)
        if work is not None:
            self._send(effect.child, work)
        else:
            # Nobody waits, or what was seen cannot be begun anew: the worker never gets it, so it holds nothing.
            self.post(events.RequestLeft(effect.request))
            self.post(events.RequestEnded(effect.request, effect.child))

    def _model_changed(self, effect: effects.ModelChanged) -> None:
        self._announcer.changed(effect.model, self._scheduler.model(effect.model))
        if self._state is not None and not self._scheduler.stopping:
            keys = (view.key for view in self._scheduler.models() if view.status in ("loading", "loaded"))
            self._state.save_residents(Residents(tuple(keys), clean=False))

    def _record(self, effect: effects.Record) -> None:
        view = self._scheduler.model(effect.model)
        name = view.names[0] if view is not None and view.names else effect.model
        log.info("%s: %s, %s", name, effect.decision, effect.reason)

    def _set_timer(self, effect: effects.SetTimer) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._await_time(effect.at)

    def _await_time(self, at: float) -> None:
        """Tell the scheduler that its time has come; not too early: it would wait for a timer that is gone."""
        left = at - time.monotonic()
        if left <= 0:
            self.post(events.TimerFired())
        else:
            # The loop counts in milliseconds and may round down.
            self._timer = asyncio.get_running_loop().call_later(left, self._await_time, at)

    # From children: the nursery's listener

    def connected(self, child: Child) -> None:
        record = self._table.get(child)
        if record is not None:
            record.connected = True
        self.post(events.ChildConnected(child))

    def received(self, child: Child, message: codec.FromChild) -> None:
        if isinstance(message, StepOutput):
            self._book.deltas(child, message.deltas)
        elif isinstance(message, UpdateStatus):
            self._reported(child, message)
        elif isinstance(message, Loaded):
            self._table.loaded(child, message)
        elif isinstance(message, _ANSWERS):
            self._answered(child, message)
        else:
            log.warning("%s sent %s, which no worker sends", child, type(message).__name__)

    def exited(self, child: Child, report: ExitReport) -> None:
        record = self._table.get(child)
        if record is not None:
            self._activity.forget(record.pid)
            self._table.remove(child)
        self.post(events.ChildExited(child, report))

    def stuck(self, child: Child) -> None:
        self.post(events.ChildStuck(child))

    def _reported(self, child: Child, message: UpdateStatus) -> None:
        status = self._table.take(child, message)
        if status is None:
            return
        self.post(events.ChildReported(child, status))
        self._book.show_prefill(status.slots)
        record = self._table.get(child)
        if record is not None and record.model is not None:
            measured = self._measurements.take(record.model, status)
            if measured is not None:
                self.post(measured)

    def _answered(self, child: Child, answer: codec.Answer) -> None:
        if not self._book.answer(child, answer):
            log.debug("%s answered request %d, which it does not hold", child, answer.request)
            return
        error = answer.error if isinstance(answer, Failed) else None
        self.post(events.RequestEnded(answer.request, child, parked=isinstance(answer, Parked), error=error))

    def _announce_progress(self, child: Child, now: float) -> None:
        record = self._table.get(child)
        view = self._scheduler.model(record.model) if record is not None and record.model is not None else None
        if view is not None and view.state in (State.LOADING, State.WAKING):
            self._announcer.progressed(view, now)

    # From time to time

    def _look(self) -> None:
        """Look at the processes that start or load, and let silent streams show signs of life."""
        for record in self._table.records():
            if record.preparing and self._activity.has_worked(record.pid):
                self.post(events.ChildProgressed(record.child))
        silent_since = time.monotonic() - self._heartbeat
        for stream in self._book.streams:
            if stream.last_write < silent_since:
                stream.show_life()
        self._look_timer = asyncio.get_running_loop().call_later(self._look_interval, self._look)

    def _record_of(self, key: str) -> WorkerRecord | None:
        view = self._scheduler.model(key)
        return self._table.get(view.child) if view is not None and view.child is not None else None

"""The single task that owns the scheduler: feeds it events, runs its effects, routes output to streams."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from protocol.codec import Work
from protocol.control import EndReasoning
from protocol.errors import ErrorKind, WireError
from protocol.load import ModelInfo
from protocol.status import UpdateStatus
from router.scheduling import effects, events, views
from router.scheduling.events import Child
from router.scheduling.model import Policy
from router.scheduling.scheduler import Scheduler
from router.scheduling.states import IllegalTransition, State
from router.supervision.announcer import Announcer
from router.supervision.childlog import ChildLog
from router.supervision.measuring import Measurements
from router.supervision.news import NewsHub
from router.supervision.nursery import Nursery
from router.supervision.performer import Performer
from router.supervision.plans import Plans, WorkerCommand, real_worker
from router.supervision.reception import Reception
from router.supervision.requests import RequestBook
from router.supervision.rounds import Rounds
from router.supervision.state import Residents, StateFolder
from router.supervision.worker_table import WorkerRecord, WorkerTable
from router.transport.stream import RequestStream

log = logging.getLogger("llamaherd.supervision")

LOOK_INTERVAL = 1.0
"""Seconds between two looks at processes that start or load, and at streams that are silent."""
HEARTBEAT = 30.0
STOP_BUDGET = 5.0


Observer = Callable[[events.Event, Sequence[effects.Effect]], None]


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
        self._observe = observe
        self._book = RequestBook()
        self._table = WorkerTable()
        self._announcer = Announcer(self.news, self._table)
        self._measurements = Measurements(state)
        self._performer = Performer(
            post=self.post,
            scheduler=scheduler,
            nursery=nursery,
            listener=Reception(self.post, self._book, self._table, self._measurements),
            book=self._book,
            table=self._table,
            announcer=self._announcer,
            state=state,
            worker_command=worker_command,
        )
        self._rounds = Rounds(self.post, self._book, self._table, heartbeat=heartbeat, interval=look_interval)
        self._events: deque[events.Event] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._to_restore = frozenset(state.residents_to_restore()) if state is not None else frozenset()

    # For the rest of the router

    @property
    def alive(self) -> bool:
        """Whether the task runs. Once it has failed, nothing is served any more."""
        return self._task is not None and not self._task.done()

    async def open(self) -> None:
        """Start to listen to children and to run."""
        self._nursery.open()
        self._task = asyncio.get_running_loop().create_task(self._work_off(), name="owner")
        self._rounds.open()

    def configure(self, plans: Plans, policy: Policy, restart: tuple[str, ...] = ()) -> None:
        """Take a configuration, at the start or after a reload. The first one restores what an unclean end left."""
        self._performer.configure(plans)
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
        self._performer.send(child, EndReasoning(request))
        return True

    def post(self, event: events.Event) -> None:
        self._events.append(event)
        self._wake.set()

    def view(self, key: str) -> views.ModelView | None:
        return self._scheduler.model(key)

    def models(self) -> Sequence[views.ModelView]:
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
        """The output of the model's worker, or of its last one; None if it never had one."""
        return self._performer.logs.get(key)

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
        self._rounds.close()
        self._performer.close()
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
            self._performer.perform(effect)
        if isinstance(event, events.ChildReported):
            self._announce_progress(event.child, now)
        if self._scheduler.stopped:
            self._stopped.set()

    def _announce_progress(self, child: Child, now: float) -> None:
        record = self._table.get(child)
        view = self._scheduler.model(record.model) if record is not None and record.model is not None else None
        if view is not None and view.state in (State.LOADING, State.WAKING):
            self._announcer.progressed(view, now)

    def _record_of(self, key: str) -> WorkerRecord | None:
        child = self._scheduler.child(key)
        return self._table.get(child) if child is not None else None

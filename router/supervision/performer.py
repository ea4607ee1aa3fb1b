"""Does what the scheduler wants done. Nothing here waits: every outcome comes back as an event."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

from protocol import codec
from protocol.control import Cancel, Forecast, ForecastFile, Park, QueryStatus, SetThreads, Sleep, Wakeup
from router.scheduling import effects, events
from router.scheduling.events import Child, Event, ExitReason
from router.scheduling.scheduler import Scheduler
from router.supervision.announcer import Announcer
from router.supervision.childlog import ChildLog
from router.supervision.memory import MemoryReader
from router.supervision.nursery import Listener, Nursery
from router.supervision.plans import NoPlans, Plans, WorkerCommand
from router.supervision.requests import RequestBook
from router.supervision.state import Residents, StateFolder
from router.supervision.worker_table import WorkerRecord, WorkerTable
from router.transport.link import ChildGone

log = logging.getLogger("llamaherd.supervision")


class Performer:
    """One method per effect; `perform` chooses. `listener` hears of the workers that are spawned."""

    def __init__(
        self,
        *,
        post: Callable[[Event], None],
        scheduler: Scheduler,
        nursery: Nursery,
        listener: Listener,
        book: RequestBook,
        table: WorkerTable,
        announcer: Announcer,
        state: StateFolder | None,
        worker_command: WorkerCommand,
    ) -> None:
        self.plans: Plans = NoPlans()
        self.logs: dict[str, ChildLog] = {}
        """Output of the last worker of each model, also of a dead one."""
        self._post = post
        self._scheduler = scheduler
        self._nursery = nursery
        self._listener = listener
        self._book = book
        self._table = table
        self._announcer = announcer
        self._state = state
        self._worker_command = worker_command
        self._memory = MemoryReader()
        self._nonce = 0
        self._timer: asyncio.TimerHandle | None = None
        self._memory_timer: asyncio.TimerHandle | None = None
        self._methods: dict[type[Any], Callable[[Any], None]] = {
            effects.Spawn: self._spawn,
            effects.SendLoad: self._send_load,
            effects.SendForecast: self._send_forecast,
            effects.SendSleep: lambda effect: self.send(effect.child, Sleep()),
            effects.SendWakeup: lambda effect: self.send(effect.child, Wakeup()),
            effects.SendQuery: self._send_query,
            effects.SendThreads: lambda effect: self.send(effect.child, SetThreads(effect.threads, effect.threads)),
            effects.Stop: lambda effect: self._nursery.stop(effect.child, effect.reason, effect.budget),
            effects.Kill: lambda effect: self._nursery.kill(effect.child, effect.reason, effect.dump),
            effects.Dispatch: self._dispatch,
            effects.CancelWork: lambda effect: self.send(effect.child, Cancel(effect.request)),
            effects.ParkWork: lambda effect: self.send(effect.child, Park(effect.request)),
            effects.EndRequest: lambda effect: self._book.end(effect.request, effect.error),
            effects.Notify: lambda effect: self._book.notify(
                effect.request, effect.phase, effect.position, effect.progress
            ),
            effects.ModelChanged: self._model_changed,
            effects.Record: self._record,
            effects.SetTimer: self._set_timer,
            effects.ReadMemory: self._read_memory,
        }

    def configure(self, plans: Plans) -> None:
        """From now on models are what `plans` says."""
        self.plans = plans
        keys = {entry.key for entry in plans.entries()}
        self.logs = {key: output for key, output in self.logs.items() if key in keys}

    def perform(self, effect: effects.Effect) -> None:
        self._methods[type(effect)](effect)

    def close(self) -> None:
        """Forget what was to be done later."""
        for timer in (self._timer, self._memory_timer):
            if timer is not None:
                timer.cancel()

    def send(self, child: Child, message: codec.ToChild) -> None:
        """Send to a worker. If it is gone, its exit is told soon."""
        try:
            self._nursery.send(child, message)
        except ChildGone:
            log.debug("%s is gone: %s was not sent", child, type(message).__name__)

    def _spawn(self, effect: effects.Spawn) -> None:
        try:
            extra = self.plans.environment(effect.model) if effect.model is not None else {}
            pid = self._nursery.spawn(effect.child, self._worker_command(extra), self._listener)
        except KeyError:
            self._post(events.SpawnFailed(effect.child, "the model is not configured any more"))
            return
        except OSError as error:
            self._post(events.SpawnFailed(effect.child, str(error)))
            return
        self._table.add(WorkerRecord(effect.child, pid))
        self._keep_log(effect.model, effect.child)
        self._post(events.ChildSpawned(effect.child, pid))

    def _send_load(self, effect: effects.SendLoad) -> None:
        record = self._table.get(effect.child)
        if record is None:
            return
        try:
            load = self.plans.load(effect.model)
        except KeyError:  # a reload has dropped it since
            self._nursery.stop(effect.child, ExitReason.ASKED, 0.0)
            return
        record.model = effect.model
        self._keep_log(effect.model, effect.child)
        self.send(effect.child, load)

    def _send_forecast(self, effect: effects.SendForecast) -> None:
        files = []
        for key in effect.models:
            with contextlib.suppress(KeyError):  # a reload has dropped it since
                parameters = self.plans.load(key).parameters
                files.append(ForecastFile(parameters.model_path, parameters.override_kv))
        self.send(effect.child, Forecast(tuple(files)))

    def _keep_log(self, model: str | None, child: Child) -> None:
        output = self._nursery.log_of(child.name)
        if model is not None and output is not None:
            self.logs[model] = output

    def _send_query(self, effect: effects.SendQuery) -> None:
        self._nonce += 1
        self.send(effect.child, QueryStatus(self._nonce))

    def _dispatch(self, effect: effects.Dispatch) -> None:
        work = self._book.assign(effect.request, effect.child)
        if work is not None:
            self.send(effect.child, work)
        else:
            # Nobody waits, or what was seen cannot be begun anew: the worker never gets it, so it holds nothing.
            self._post(events.RequestLeft(effect.request))
            self._post(events.RequestEnded(effect.request, effect.child))

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
            self._post(events.TimerFired())
        else:
            # The loop counts in milliseconds and may round down.
            self._timer = asyncio.get_running_loop().call_later(left, self._await_time, at)

    def _read_memory(self, effect: effects.ReadMemory) -> None:
        """Read now, or a moment later if the last reading is so fresh that it would only be repeated."""
        if self._memory_timer is not None:
            self._memory_timer.cancel()
        pause = self._memory.pause(time.monotonic())
        self._memory_timer = asyncio.get_running_loop().call_later(pause, self._post_reading)

    def _post_reading(self) -> None:
        self._post(self._memory.read(time.monotonic()))

"""A simulated worker process: it loads, serves, sleeps, declines, loses messages, hangs and dies, by chance."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from protocol.errors import ErrorKind, ExitCode, WireError
from protocol.status import SlotStatus, UpdateStatus, WorkerState
from router.scheduling import events
from router.scheduling.events import Child, Event, ExitReason, ExitReport
from tests.scenarios.clock import Clock


@dataclass(frozen=True)
class Temper:
    """Probabilities of faults, and delays in seconds."""

    spawn_fails: float = 0.0
    dies_at_start: float = 0.0
    load_error: float = 0.0
    load_out_of_memory: float = 0.0
    load_crash: float = 0.0
    crash: float = 0.0
    """That a request ends with the death of the worker, by no fault of its own."""
    hang: float = 0.0
    """That a request makes the worker stand still."""
    loses_work: float = 0.0
    loses_wakeup: float = 0.0
    stubborn: float = 0.0
    """That a stop takes until SIGKILL."""
    unkillable: float = 0.0
    stale_reports: float = 0.0
    tight: float = 0.0
    """That a reading of free memory finds a third of the budget."""
    load: tuple[float, float] = (0.2, 3.0)
    service: tuple[float, float] = (0.1, 20.0)
    latency: float = 0.02


class World(Protocol):
    """What a worker needs of the simulation around it."""

    clock: Clock
    random: random.Random
    temper: Temper

    def post(self, event: Event) -> None: ...
    def needs_weights(self, request: int) -> bool: ...
    def poisonous(self, request: int) -> bool: ...
    def first_byte(self, request: int, child: Child) -> None: ...


CANCELLED = WireError(ErrorKind.CANCELLED, "cancelled")


class SimulatedWorker:
    """Messages to and from it keep their order. `holds_memory` is what really is in memory."""

    def __init__(self, world: World, child: Child, slots: int = 4) -> None:
        self.world = world
        self.child = child
        self.slots = slots
        self.model: str | None = None
        self.state = WorkerState.EMPTY
        self.alive = True
        self.silent = False
        self.still = False
        self.dying = False
        self.holds_memory = False
        self.queued: list[int] = []
        self.running: dict[int, bool] = {}
        self.parking: set[int] = set()
        self.step = 0
        self.revision = 0
        self._in = 0.0
        self._out = 0.0
        self._era = 0

    # The wire

    def receive(self, action: Callable[[], None]) -> None:
        """A message from the router: acted upon after a delay, in order, by a worker that still lives."""
        clock, source = self.world.clock, self.world.random
        self._in = max(self._in, clock.now + source.random() * self.world.temper.latency)
        clock.at(self._in, lambda: action() if self.alive and not self.silent else None)

    def send(self, event: Event) -> None:
        clock, source = self.world.clock, self.world.random
        self._out = max(self._out, clock.now + source.random() * self.world.temper.latency)
        clock.at(self._out, lambda: self.world.post(event))

    def report(self, answers: int = 0) -> None:
        self.revision += 1
        if self.running and not self.still:
            self.step += 1
        busy = tuple(SlotStatus(index, "decode", request) for index, request in enumerate(self.running))
        idle = tuple(SlotStatus(index, "idle") for index in range(len(busy), self.slots))
        held = (*self.running, *self.queued)
        status = UpdateStatus(
            self.revision, self.state, answers=answers, step=self.step, slots=busy + idle, held=held, progress=0.5
        )
        self.send(events.ChildReported(self.child, status))

    def _after(self, delay: float, action: Callable[[], None]) -> None:
        """Later, unless the worker has died, hangs, or was told something else meanwhile."""
        era = self._era
        self.world.clock.later(delay, lambda: action() if self.alive and not self.silent and era == self._era else None)

    # Messages

    def start(self) -> None:
        temper, source = self.world.temper, self.world.random
        if source.random() < temper.spawn_fails:
            self.alive = False
            self.send(events.SpawnFailed(self.child, "cannot allocate memory"))
            return
        self.send(events.ChildSpawned(self.child, 1000 + self.child.epoch))
        delay = source.uniform(0.1, 0.6)
        if source.random() < temper.dies_at_start:
            self.world.clock.later(delay, lambda: self.die(ExitReason.CRASHED, 1))
        else:
            self._after(delay, lambda: self.send(events.ChildConnected(self.child)))

    def load(self, model: str, slots: int) -> None:
        self.model = model
        self.slots = slots
        self._come_up(WorkerState.LOADING)

    def _come_up(self, state: WorkerState) -> None:
        temper, source = self.world.temper, self.world.random
        self.state = state
        self.holds_memory = True
        self._era += 1
        self.report()
        delay = source.uniform(*temper.load)
        fate = source.random()
        if fate < temper.load_error:
            self._after(delay / 2, lambda: self.die(ExitReason.LOAD_ERROR, ExitCode.LOAD_FAILED))
        elif fate < temper.load_error + temper.load_out_of_memory:
            self._after(delay / 2, lambda: self.die(ExitReason.OUT_OF_MEMORY, ExitCode.OUT_OF_MEMORY))
        elif fate < temper.load_error + temper.load_out_of_memory + temper.load_crash:
            self._after(delay / 2, lambda: self.die(ExitReason.SIGNAL, -11))
        else:
            self._after(delay / 2, self.report)
            self._after(delay, self._up)

    def _up(self) -> None:
        self.state = WorkerState.READY
        self.report()
        self._fill()

    def work(self, request: int) -> None:
        if self.world.random.random() < self.world.temper.loses_work:
            return
        if not self.world.needs_weights(request):
            self.send(events.RequestEnded(request, self.child))
            return
        self.queued.append(request)
        if self.state is WorkerState.SLEEPING:
            self._come_up(WorkerState.WAKING)
        self._fill()

    def _fill(self) -> None:
        while self.state is WorkerState.READY and self.queued and len(self.running) < self.slots:
            self._run(self.queued.pop(0))

    def _run(self, request: int) -> None:
        temper, source = self.world.temper, self.world.random
        self.running[request] = True
        time = source.uniform(*temper.service) if source.random() < 0.3 else source.uniform(0.05, 1.0)
        fate = source.random()
        self.world.clock.later(time * 0.2, lambda: self._first_byte(request))
        if self.world.poisonous(request):
            self.world.clock.later(time * 0.1, lambda: self._fatal(request))
        elif fate < temper.crash:
            self.world.clock.later(time * source.random(), lambda: self._fatal(request))
        elif fate < temper.crash + temper.hang:
            self.world.clock.later(time * source.random(), lambda: self._hang(request))
        else:
            self.world.clock.later(time, lambda: self._finish(request))

    def _first_byte(self, request: int) -> None:
        if self.alive and not self.silent and request in self.running:
            self.world.first_byte(request, self.child)

    def _fatal(self, request: int) -> None:
        if request in self.running:
            self.die(ExitReason.SIGNAL, -11)

    def _hang(self, request: int) -> None:
        if self.alive and request in self.running:
            self.still = True
            self.silent = self.world.random.random() < 0.5

    def _finish(self, request: int) -> None:
        if self.alive and not self.silent and not self.still and request in self.running:
            self._let_go(request, events.RequestEnded(request, self.child))

    def _let_go(self, request: int, event: events.RequestEnded) -> None:
        self.running.pop(request, None)
        if request in self.queued:
            self.queued.remove(request)
        self.send(event)
        self._fill()

    def cancel(self, request: int) -> None:
        if not self.still and (request in self.running or request in self.queued):
            self._let_go(request, events.RequestEnded(request, self.child, error=CANCELLED))

    def park(self, request: int) -> None:
        if not self.still and (request in self.running or request in self.queued):
            self._let_go(request, events.RequestEnded(request, self.child, parked=True))

    def sleep(self) -> None:
        if self.world.random.random() < self.world.temper.stale_reports:
            self.report()
        if self.queued or self.running:
            self.report()
            return
        self._after(self.world.random.uniform(0.01, 0.3), self._asleep)

    def _asleep(self) -> None:
        if self.queued or self.running:
            self.report()
        else:
            self.state = WorkerState.SLEEPING
            self.holds_memory = False
            self.report()

    def wakeup(self) -> None:
        if self.state is WorkerState.SLEEPING and self.world.random.random() >= self.world.temper.loses_wakeup:
            self._come_up(WorkerState.WAKING)

    def stop(self, budget: float) -> None:
        """The stop ladder, which works on silent processes too."""
        temper, source = self.world.temper, self.world.random
        self.dying = True
        slow = self.silent or self.still or source.random() < temper.stubborn
        delay = budget + source.random() if slow else source.uniform(0.02, 0.5)
        self._end(delay)

    def kill(self) -> None:
        self.dying = True
        self._end(self.world.random.uniform(0.02, 0.5))

    def _end(self, delay: float) -> None:
        clock, source = self.world.clock, self.world.random
        if source.random() < self.world.temper.unkillable:
            clock.later(delay + 10.0, lambda: self._stuck())
            clock.later(delay + 10.0 + source.uniform(5.0, 400.0), lambda: self.die(ExitReason.SIGNAL, -9))
        else:
            clock.later(delay, lambda: self.die(ExitReason.ASKED, 0))

    def _stuck(self) -> None:
        if self.alive:
            self.silent = True
            self.send(events.ChildStuck(self.child))

    def die(self, reason: ExitReason, code: int) -> None:
        if not self.alive:
            return
        self.alive = False
        self.holds_memory = False
        self.queued.clear()
        self.running.clear()
        self.send(events.ChildExited(self.child, ExitReport(reason, code, stderr=("the last words",))))

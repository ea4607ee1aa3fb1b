"""Drives a scheduler by hand: one call per thing that happens, the effects of the last one to look at."""

from __future__ import annotations

import itertools
import random
from typing import Any, TypeVar

from protocol.errors import ErrorKind
from protocol.status import UpdateStatus, WorkerState
from router.scheduling import effects, events
from router.scheduling.events import Child, Event, ExitReason, ExitReport
from router.scheduling.model import ModelEntry, Need, Policy
from router.scheduling.scheduler import Scheduler
from router.scheduling.states import State
from router.scheduling.views import ModelView

T = TypeVar("T", bound=effects.Effect)

DEFAULTS = {"spare_workers": 0, "max_swap_wait": 5.0}


def entry(key: str, **options: Any) -> ModelEntry:
    return ModelEntry(key=key, names=(key,), **options)


def host(private: int, *shared: tuple[str, int]) -> tuple[Need, ...]:
    return (Need("host", private, shared),)


class Rig:
    """`now` moves by `wait`; alarms that fall due on the way are fired at their times, as the owner does."""

    def __init__(self, *entries: ModelEntry, **policy: Any) -> None:
        self.policy = Policy(**{**DEFAULTS, **policy})
        self.scheduler = Scheduler(self.policy, random.Random(1))
        self.now = 100.0
        self.last: list[effects.Effect] = []
        self.all: list[effects.Effect] = []
        self._alarm: float | None = None
        self._revisions = itertools.count(1)
        self._requests = itertools.count(1)
        self.post(events.ModelsChanged(entries, self.policy))

    def post(self, event: Event) -> list[effects.Effect]:
        self.last = self.scheduler.handle(event, self.now)
        self.all += self.last
        for timer in self.seen(effects.SetTimer):
            self._alarm = timer.at
        return self.last

    def wait(self, seconds: float) -> None:
        """Let time pass; `last` holds the effects of the whole wait."""
        end, collected = self.now + seconds, []
        while self._alarm is not None and self._alarm <= end:
            self.now, self._alarm = max(self.now, self._alarm), None
            collected += self.post(events.TimerFired())
        self.now = end
        self.last = collected

    # What was done

    def seen(self, kind: type[T]) -> list[T]:
        return [effect for effect in self.last if isinstance(effect, kind)]

    def all_of(self, kind: type[T]) -> list[T]:
        """Since the beginning."""
        return [effect for effect in self.all if isinstance(effect, kind)]

    def one(self, kind: type[T]) -> T:
        found = self.seen(kind)
        assert len(found) == 1, f"{len(found)} {kind.__name__} in {self.last}"
        return found[0]

    def none(self, *kinds: type[effects.Effect]) -> None:
        found = [effect for effect in self.last if isinstance(effect, kinds)]
        assert not found, found

    def dispatched(self) -> list[int]:
        return [effect.request for effect in self.seen(effects.Dispatch)]

    def ended(self) -> dict[int, ErrorKind]:
        return {effect.request: effect.error.kind for effect in self.seen(effects.EndRequest)}

    def error(self, request: int) -> str:
        return next(
            e.error.message for e in reversed(self.all) if isinstance(e, effects.EndRequest) and e.request == request
        )

    def view(self, key: str) -> ModelView:
        view = self.scheduler.model(key)
        assert view is not None
        return view

    def state(self, key: str) -> State:
        return self.view(key).state

    def child(self, key: str) -> Child:
        child = self.view(key).child
        assert child is not None, f"{key} has no worker"
        return child

    # What happens

    def ask(self, model: str, **options: Any) -> int:
        """A request arrives; returns its number."""
        request = next(self._requests)
        self.post(events.RequestArrived(request, model, **options))
        return request

    def connect(self, child: Child) -> None:
        self.post(events.ChildSpawned(child, 100))
        self.post(events.ChildConnected(child))

    def report(self, child: Child, state: WorkerState, **fields: Any) -> None:
        self.post(events.ChildReported(child, UpdateStatus(next(self._revisions), state, **fields)))

    def end(self, request: int, child: Child, **fields: Any) -> None:
        self.post(events.RequestEnded(request, child, **fields))

    def exit(self, child: Child, code: int = 0, reason: ExitReason = ExitReason.CRASHED, **fields: Any) -> None:
        self.post(events.ChildExited(child, ExitReport(reason, code, **fields)))

    def up(self, key: str, seconds: float = 0.0) -> Child:
        """A model that was given a worker becomes ready; `seconds` is how long that takes."""
        child = self.child(key)
        if self.state(key) is State.SPAWNING:
            self.connect(child)
        self.report(child, WorkerState.LOADING)
        if seconds:
            self.wait(seconds)
        self.report(child, WorkerState.READY)
        return child

    def serve(self, key: str) -> Child:
        """A request makes the model resident and is answered: it is idle and ready afterwards."""
        request = self.ask(key)
        child = self.child(key) if self.state(key) is State.READY else self.up(key)
        self.end(request, child)
        return child

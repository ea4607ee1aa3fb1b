"""Watches what happens to the scheduler and what it decides; counts what no table shows afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from protocol.status import WorkerState
from router.metrics.observations import Observations
from router.metrics.totals import ModelTotals
from router.scheduling import effects, events
from router.scheduling.events import Child, ExitReason
from router.scheduling.model import ModelEntry, Policy

_CRASHES = frozenset({ExitReason.CRASHED, ExitReason.SIGNAL, ExitReason.OUT_OF_MEMORY, ExitReason.WEDGED})
_EVICTIONS = {ExitReason.EVICTED: "swap", ExitReason.IDLE: "idle"}
"""Why models leave without being asked to, in the words of the metric."""


class SchedulerObserver:
    """Called with each event and the effects it had, in order. It decides nothing."""

    def __init__(self, observations: Observations, clock: Callable[[], float] = time.monotonic) -> None:
        self.entries: dict[str, ModelEntry] = {}
        self.policy = Policy()
        self._observations = observations
        self._clock = clock
        self._totals: dict[str, ModelTotals] = {}
        self._models: dict[Child, str] = {}
        """The key of the model that a worker has or loads."""
        self._loading: dict[Child, float] = {}
        """When the load was decided, for workers that have not been ready yet."""
        self._crashed: set[str] = set()

    def __call__(self, event: events.Event, wanted: Sequence[effects.Effect]) -> None:
        if isinstance(event, events.ChildReported):
            self._reported(event)
        elif isinstance(event, events.ChildExited):
            self._exited(event)
        elif isinstance(event, events.ModelsChanged):
            self.entries = {entry.key: entry for entry in event.models}
            self.policy = event.policy
        elif isinstance(event, events.MemoryMeasured):
            self.entries[event.model] = event.entry
        for effect in wanted:
            if isinstance(effect, effects.Spawn | effects.SendLoad):
                self._load(effect.child, effect.model)
            elif isinstance(effect, effects.Stop) and effect.reason in _EVICTIONS:
                self._stopping(effect.child, _EVICTIONS[effect.reason])

    def name(self, key: str) -> str:
        """The model's first name: the label of its metrics. Empty for spares and models that were removed."""
        entry = self.entries.get(key)
        return entry.names[0] if entry is not None and entry.names else ""

    def totals(self, key: str) -> ModelTotals:
        totals = self._totals.get(key)
        if totals is None:
            totals = self._totals[key] = ModelTotals()
        return totals

    def _load(self, child: Child, model: str | None) -> None:
        if model is None or child in self._loading:
            return
        self._models[child] = model
        self._loading[child] = self._clock()
        if model in self._crashed:
            self._crashed.discard(model)
            self._observations.worker_restarted(self.name(model))

    def _reported(self, event: events.ChildReported) -> None:
        model = self._models.get(event.child)
        if model is None:
            return
        self.totals(model).update(event.child, event.status.counters, self._clock())
        if event.status.state is WorkerState.READY and event.child in self._loading:
            self._observations.loaded(self.name(model), self._clock() - self._loading.pop(event.child))

    def _stopping(self, child: Child, reason: str) -> None:
        model = self._models.get(child)
        if model is not None:
            self._observations.evicted(self.name(model), reason)

    def _exited(self, event: events.ChildExited) -> None:
        model = self._models.pop(event.child, "")
        began = self._loading.pop(event.child, None)
        reason = event.report.reason
        if began is not None and (reason in _CRASHES or reason is ExitReason.LOAD_ERROR):
            self._observations.load_failed(self.name(model))
        if model and reason in _CRASHES:
            self._crashed.add(model)
        self._observations.worker_ended(self.name(model), reason.value)

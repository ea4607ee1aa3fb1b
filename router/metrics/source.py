"""Takes the snapshot of a scrape from the tables. It reads; no worker hears of it."""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from msgspec import structs

from router.metrics.observer import SchedulerObserver
from router.metrics.snapshot import DeviceSample, DownloadSample, ModelSample, Snapshot
from router.scheduling.budget import occupied
from router.scheduling.model import Policy
from router.scheduling.states import State
from router.scheduling.views import ModelView
from router.supervision.owner import Owner

_IDLE = "idle"
_HOLDING = frozenset(State) - {State.UNLOADED, State.BACKOFF, State.FAILED, State.SLEEPING}
"""States in which a model's memory is reserved; that of a stuck worker is, too."""


def _same(left: tuple[ModelSample, ...], right: tuple[ModelSample, ...]) -> bool:
    return len(left) == len(right) and all(map(operator.is_, left, right))


@dataclass(frozen=True, slots=True, eq=False)
class _Sampled:
    """A sample, what it was taken of, and until when it holds if nothing happens to the model."""

    view: ModelView
    until: float
    sample: ModelSample


class TableSource:
    """What changes no model costs no sample: hundreds are idle while a few run.

    `streams` counts the answers that are held, `downloads` lists those that run."""

    def __init__(
        self,
        owner: Owner,
        observer: SchedulerObserver,
        streams: Callable[[], int],
        downloads: Callable[[], Iterable[DownloadSample]] = tuple,
    ) -> None:
        self._owner = owner
        self._observer = observer
        self._streams = streams
        self._downloads = downloads
        self._version = version("llamaherd")
        self._seen: dict[str, _Sampled] = {}
        self._views: Sequence[ModelView] = ()
        self._until = 0.0
        self._policy: Policy | None = None
        self._models: tuple[ModelSample, ...] = ()
        self._devices: tuple[DeviceSample, ...] = ()

    def take(self) -> Snapshot:
        self._look()
        return Snapshot(
            version=self._version,
            models=self._models,
            devices=self._devices,
            downloads=tuple(self._downloads()),
            spare_workers=sum(record.model is None for record in self._owner.workers()),
            streams=self._streams(),
        )

    def _look(self) -> None:
        """Sample the models about which something has changed; keep the others, and all if there is none."""
        now = time.monotonic()
        all_views = self._owner.models()
        if all_views is self._views and now < self._until and self._observer.policy is self._policy:
            return
        self._views = all_views
        views = [view for view in all_views if view.names]
        waits = self._waits() if any(view.waiting for view in views) else {}
        seen = {view.key: self._sampled(view, waits.get(view.key, 0.0), now) for view in views}
        models = tuple([sampled.sample for sampled in seen.values()])
        self._seen = seen
        self._until = min((sampled.until for sampled in seen.values()), default=math.inf)
        if not _same(models, self._models) or self._observer.policy is not self._policy:
            self._models, self._policy = models, self._observer.policy
            self._devices = self._reserved(views)

    def _sampled(self, view: ModelView, oldest_wait: float, now: float) -> _Sampled:
        before = self._seen.get(view.key)
        if before is not None and before.view is view and now < before.until:
            return before
        sample = self._model(view, oldest_wait, now)
        if before is not None and before.sample == sample:
            sample = before.sample
        until = now if view.waiting else self._observer.totals(view.key).steady_until()
        return _Sampled(view, until, sample)

    def _waits(self) -> dict[str, float]:
        """How long the oldest request of each model has waited, in seconds."""
        waits: dict[str, float] = {}
        for line in self._owner.waiting():
            waits[line.model] = max(waits.get(line.model, 0.0), line.waited)
        return waits

    def speed(self, key: str) -> float:
        """Generated tokens per second of a model, as its metrics show it."""
        return self._observer.totals(key).rates(time.monotonic())[1]

    def summary(self) -> str:
        """One line for people: what is loaded, runs and waits."""
        views = self._owner.models()
        loaded = sum(view.status == "loaded" for view in views)
        running, waiting = sum(view.running for view in views), sum(view.waiting for view in views)
        return f"{loaded} loaded, {running} running, {waiting} queued"

    def _model(self, view: ModelView, oldest_wait: float, now: float) -> ModelSample:
        status = self._owner.status(view.key)
        totals = self._observer.totals(view.key)
        prompt_rate, predicted_rate = totals.rates(now)
        entry = self._observer.entries.get(view.key)
        sample = ModelSample(
            model=view.names[0],
            state=view.state.value,
            slots=entry.slots if entry is not None else 0,
            running=view.running,
            waiting=view.waiting,
            oldest_wait=oldest_wait,
            load_progress=view.progress,
            pinned=view.pin,
            counters=totals.total,
            prompt_rate=prompt_rate,
            predicted_rate=predicted_rate,
        )
        if status is None:
            return sample
        return structs.replace(
            sample,
            has_worker=True,
            slots=len(status.slots) or sample.slots,
            slots_busy=sum(slot.state != _IDLE for slot in status.slots),
            kv_used=status.kv_used,
            kv_total=status.kv_total,
            threads=status.threads,
            memory=status.memory,
        )

    def _reserved(self, views: Iterable[ModelView]) -> tuple[DeviceSample, ...]:
        entries = self._observer.entries
        resident = [entries[view.key].needs for view in views if view.state in _HOLDING and view.key in entries]
        reserved = occupied(resident)
        return tuple(
            DeviceSample(device, budget, reserved.get(device, 0)) for device, budget in self._observer.policy.budget
        )

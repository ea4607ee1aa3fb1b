"""Takes the snapshot of a scrape from the tables. It reads; no worker hears of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from importlib.metadata import version

from msgspec import structs

from router.metrics.observer import SchedulerObserver
from router.metrics.snapshot import DeviceSample, DownloadSample, ModelSample, Snapshot
from router.scheduling.budget import occupied
from router.scheduling.states import State
from router.scheduling.views import ModelView
from router.supervision.owner import Owner

_IDLE = "idle"
_HOLDING = frozenset(State) - {State.UNLOADED, State.BACKOFF, State.FAILED, State.SLEEPING}
"""States in which a model's memory is reserved; that of a stuck worker is, too."""


class TableSource:
    """`streams` counts the answers that are held, `downloads` lists those that run."""

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

    def take(self) -> Snapshot:
        now = time.monotonic()
        views = self._owner.models()
        waits: dict[str, float] = {}
        for line in self._owner.waiting():
            waits[line.model] = max(waits.get(line.model, 0.0), line.waited)
        return Snapshot(
            version=self._version,
            models=tuple(self._model(view, waits.get(view.key, 0.0), now) for view in views if view.names),
            devices=self._devices(views),
            downloads=tuple(self._downloads()),
            spare_workers=sum(record.model is None for record in self._owner.workers()),
            streams=self._streams(),
        )

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
            slots=len(status.slots) or sample.slots,
            slots_busy=sum(slot.state != _IDLE for slot in status.slots),
            kv_used=status.kv_used,
            kv_total=status.kv_total,
            threads=status.threads,
            memory=status.memory,
        )

    def _devices(self, views: Iterable[ModelView]) -> tuple[DeviceSample, ...]:
        entries = self._observer.entries
        resident = [entries[view.key].needs for view in views if view.state in _HOLDING and view.key in entries]
        reserved = occupied(resident)
        return tuple(
            DeviceSample(device, budget, reserved.get(device, 0)) for device, budget in self._observer.policy.budget
        )

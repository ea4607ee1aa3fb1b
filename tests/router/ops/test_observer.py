from __future__ import annotations

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from protocol.status import Counters, UpdateStatus, WorkerState
from router.metrics.exposition import Metrics
from router.metrics.observations import Observations
from router.metrics.observer import SchedulerObserver
from router.metrics.snapshot import Snapshot
from router.scheduling.effects import Effect, SendLoad, Spawn, Stop
from router.scheduling.events import (
    Child,
    ChildExited,
    ChildReported,
    ChildSpawned,
    Event,
    ExitReason,
    ExitReport,
    ModelsChanged,
    TimerFired,
)
from router.scheduling.model import ModelEntry, Policy

FIRST, SECOND, SPARE = Child("w1", 1), Child("w1", 2), Child("w2", 3)
MODELS = ModelsChanged((ModelEntry("key-a", ("a", "alias")), ModelEntry("key-b", ("b",))), Policy())


class Watched:
    """An observer on a clock of its own, and what it has counted."""

    def __init__(self) -> None:
        self.now = 0.0
        self.observations = Observations()
        self.observer = SchedulerObserver(self.observations, lambda: self.now)
        self.observer(MODELS, [])

    def see(self, event: Event, *wanted: Effect, after: float = 0.0) -> None:
        self.now += after
        self.observer(event, wanted)

    def counted(self) -> dict[tuple[str, ...], float]:
        text = asyncio.run(Metrics(self.observations, lambda: Snapshot("1")).scrape()).decode()
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.value and sample.name.startswith("llamaherd") and not sample.name.endswith("_bucket")
        }


def ready(child: Child, revision: int = 1, **counters: int) -> ChildReported:
    return ChildReported(child, UpdateStatus(revision, WorkerState.READY, counters=Counters(**counters)))


def exited(child: Child, reason: ExitReason) -> ChildExited:
    return ChildExited(child, ExitReport(reason, 0))


def test_a_load_is_timed_from_its_decision_to_the_first_ready() -> None:
    watched = Watched()
    watched.see(TimerFired(), Spawn(FIRST, "key-a"))
    watched.see(ChildSpawned(FIRST, 1), after=1.0)
    watched.see(TimerFired(), SendLoad(FIRST, "key-a"), after=1.0)
    watched.see(ready(FIRST), after=2.0)
    watched.see(ready(FIRST, 2), after=5.0)
    counted = watched.counted()
    assert counted["llamaherd_load_seconds_sum", "a"] == 4.0
    assert counted["llamaherd_loads_total", "a", "ok"] == 1


def test_a_spare_counts_from_when_it_takes_the_model() -> None:
    watched = Watched()
    watched.see(TimerFired(), Spawn(SPARE, None))
    watched.see(TimerFired(), SendLoad(SPARE, "key-b"), after=100.0)
    watched.see(ready(SPARE), after=0.5)
    assert watched.counted()["llamaherd_load_seconds_sum", "b"] == 0.5


def test_evictions_are_swaps_and_idle_ones_are_not() -> None:
    watched = Watched()
    for child, model, reason in ((FIRST, "key-a", ExitReason.EVICTED), (SECOND, "key-b", ExitReason.IDLE)):
        watched.see(TimerFired(), Spawn(child, model))
        watched.see(ready(child))
        watched.see(TimerFired(), Stop(child, reason, 1.0))
        watched.see(exited(child, reason))
    watched.see(TimerFired(), Stop(SPARE, ExitReason.EVICTED, 1.0))
    counted = watched.counted()
    assert counted["llamaherd_evictions_total", "a", "swap"] == 1
    assert counted["llamaherd_evictions_total", "b", "idle"] == 1
    assert counted["llamaherd_swaps_total",] == 1
    assert counted["llamaherd_worker_exits_total", "a", "evicted"] == 1
    assert ("llamaherd_loads_total", "a", "failed") not in counted


def test_a_crash_is_an_exit_and_the_next_worker_a_restart() -> None:
    watched = Watched()
    watched.see(TimerFired(), Spawn(FIRST, "key-a"))
    watched.see(exited(FIRST, ExitReason.SIGNAL))
    watched.see(TimerFired(), Spawn(SECOND, "key-a"))
    watched.see(TimerFired(), SendLoad(SECOND, "key-a"))
    watched.see(ready(SECOND))
    counted = watched.counted()
    assert counted["llamaherd_worker_exits_total", "a", "signal"] == 1
    assert counted["llamaherd_loads_total", "a", "failed"] == 1
    assert counted["llamaherd_loads_total", "a", "ok"] == 1
    assert counted["llamaherd_worker_restarts_total", "a"] == 1


def test_totals_go_on_over_workers() -> None:
    watched = Watched()
    for child, tokens in ((FIRST, 10), (SECOND, 5)):
        watched.see(TimerFired(), Spawn(child, "key-a"))
        watched.see(ready(child, predicted_tokens=tokens))
        watched.see(exited(child, ExitReason.ASKED))
    assert watched.observer.totals("key-a").total.predicted_tokens == 15


def test_a_model_that_was_removed_has_no_name() -> None:
    watched = Watched()
    watched.see(ModelsChanged((), Policy()))
    assert watched.observer.name("key-a") == ""

"""Scrapes of a gateway whose models come, go and sleep, with real processes: they see everything and change nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from router.metrics.exposition import Metrics
from router.metrics.observations import Observations
from router.metrics.observer import SchedulerObserver
from router.metrics.snapshot import Snapshot
from router.metrics.source import TableSource
from router.scheduling.model import Policy
from router.scheduling.states import State
from tests.eventually import eventually_async
from tests.fakes.herd import FAST, FakePlans, Herd, counted, read_all
from tests.router.ops.test_metrics import read

Values = dict[tuple[str, ...], float]


@dataclasses.dataclass
class Watched:
    herd: Herd
    metrics: Metrics
    anew: Callable[[], Snapshot]
    """Takes a snapshot as if it were the first."""

    async def scrape(self) -> Values:
        """A scrape, which must say what one says that knows nothing from before."""
        values = read(await self.metrics.scrape())
        snapshot = self.anew()
        fresh = read(await Metrics(self.metrics.observations, lambda: snapshot).scrape())
        moving = ("process_", "llamaherd_queue_oldest_seconds")
        for key in values.keys() | fresh.keys():
            assert values.get(key) == fresh.get(key) or key[0].startswith(moving), key
        return values


class Watch:
    """Opens herds that are observed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.herds: list[Herd] = []

    async def __call__(self, plans: FakePlans, policy: Policy = FAST) -> Watched:
        observations = Observations()
        observer = SchedulerObserver(observations)
        herd = Herd(self._folder / f"herd{len(self.herds)}", plans, policy, observe=observer)
        self.herds.append(herd)
        await herd.open()
        source = TableSource(herd.owner, observer, streams=lambda: 0)
        return Watched(
            herd,
            Metrics(observations, source.take),
            lambda: TableSource(herd.owner, observer, streams=lambda: 0).take(),
        )


@pytest.fixture
async def watch(tmp_path: Path) -> AsyncIterator[Watch]:
    opened = Watch(tmp_path)
    yield opened
    for herd in opened.herds:
        await herd.close()


async def test_a_scrape_wakes_and_loads_nothing(watch: Watch) -> None:
    watched = await watch(FakePlans({"asleep": "", "never": ""}, sleep_idle=0.1))
    herd = watched.herd
    assert await read_all(herd.generate("asleep")) == counted(8)
    await herd.reaches("asleep", State.SLEEPING)
    decided = herd.owner.decisions()
    for _ in range(20):
        values = await watched.scrape()
        assert values["llamaherd_model_state", "asleep", "sleeping"] == 1
        assert values["llamaherd_model_state", "never", "unloaded"] == 1
    assert herd.owner.decisions() == decided
    assert values["llamaherd_loads_total", "asleep", "ok"] == 1
    assert ("llamaherd_loads_total", "never", "ok") not in values


async def test_scrapes_during_swaps_show_both_models_and_disturb_neither(watch: Watch) -> None:
    policy = msgspec.structs.replace(FAST, models_max=1)
    watched = await watch(FakePlans({"a": "", "b": ""}), policy)
    herd = watched.herd
    scrapes: list[Values] = []
    never = asyncio.get_running_loop().create_future()

    async def keep_scraping() -> None:
        while True:
            scrapes.append(await watched.scrape())
            await asyncio.wait([never], timeout=0.01)

    scraping = asyncio.create_task(keep_scraping())
    for model in ("a", "b", "a"):
        assert await read_all(herd.generate(model)) == counted(8)
    scraping.cancel()
    await asyncio.gather(scraping, return_exceptions=True)
    last = await watched.scrape()
    assert last["llamaherd_loads_total", "a", "ok"] == 2
    assert last["llamaherd_loads_total", "b", "ok"] == 1
    assert last["llamaherd_swaps_total",] == 2
    assert last["llamaherd_evictions_total", "a", "swap"] == 1
    for values in scrapes:
        for model in ("a", "b"):
            states = [value for key, value in values.items() if key[:2] == ("llamaherd_model_state", model)]
            assert sum(states) == 1
    for earlier, later in itertools.pairwise(scrapes):
        fallen = [key for key in earlier if key[0].endswith("_total") and later.get(key, 0) < earlier[key]]
        assert fallen == []


async def test_a_crash_is_counted_and_the_totals_go_on(watch: Watch) -> None:
    watched = await watch(FakePlans({"a": "crash_mid_stream@1"}))
    herd = watched.herd
    herd.generate("a")
    await eventually_async(
        lambda: herd.owner.view("a") is not None and bool(herd.owner.view("a").exit),  # type: ignore[union-attr]
        20,
        "the worker dies",
    )
    await herd.reaches("a", State.READY)
    assert await read_all(herd.generate("a")) == counted(8)
    values = await watched.scrape()
    assert values["llamaherd_worker_restarts_total", "a"] == 1
    exits = {key: value for key, value in values.items() if key[0] == "llamaherd_worker_exits_total" and key[1] == "a"}
    assert sum(exits.values()) == 1

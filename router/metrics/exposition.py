"""One scrape for everything: the registry, and the text that Prometheus reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import ProcessCollector, disable_created_metrics
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from router.metrics.families import families, llamacpp_families
from router.metrics.observations import Observations
from router.metrics.snapshot import Snapshot

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

# A time of creation beside every counter is a fifth of all lines, and nobody reads it.
disable_created_metrics()  # type: ignore[no-untyped-call]


class _SnapshotCollector(Collector):
    def __init__(self, take: Callable[[], Snapshot], states: Iterable[str]) -> None:
        self._take = take
        self._states = tuple(states)

    def collect(self) -> Iterator[Metric]:
        snapshot = self._take()
        yield from families(snapshot, self._states)
        yield from llamacpp_families(snapshot.models)

    def describe(self) -> Iterator[Metric]:
        """Names without values, so that registering takes no snapshot."""
        empty = Snapshot(version="")
        yield from families(empty, self._states)
        yield from llamacpp_families(())


class Metrics:
    """All metrics of the gateway. `take` reads the tables and changes nothing; a scrape does no more than call it."""

    def __init__(self, observations: Observations, take: Callable[[], Snapshot], states: Iterable[str]) -> None:
        self.observations = observations
        self._registry = observations.registry
        self._registry.register(_SnapshotCollector(take, states))
        ProcessCollector(registry=self._registry)

    async def scrape(self) -> bytes:
        """The text format 0.0.4; see `CONTENT_TYPE`.

        Thousands of lines take tens of milliseconds, so the event loop goes on between any two families. The tables
        are read once, before the first of them.
        """
        parts = []
        for metric in self._registry.collect():
            parts.append(generate_latest(_Alone(metric)))
            await asyncio.sleep(0)  # noqa: TID251  (a turn for the others, not a wait)
        return b"".join(parts)


class _Alone(Collector):
    """One family as if it were a whole registry."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric

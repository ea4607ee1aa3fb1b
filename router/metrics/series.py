"""Metrics of the client library, rendered again only where something has changed since the last scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from prometheus_client import disable_created_metrics
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

M = TypeVar("M", bound=MetricWrapperBase)

# A time of creation beside every counter is a fifth of all lines, and nobody reads it.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Series(Generic[M]):
    """One metric object and its lines. Whoever changes the metric calls `touch`."""

    __slots__ = ("_stale", "lines", "metric", "touched")

    def __init__(self, metric: M, stale: list[Series[M]]) -> None:
        self.metric = metric
        self.touched = False
        self.lines = b""
        self._stale = stale
        self.touch()

    def touch(self) -> None:
        if not self.touched:
            self.touched = True
            self._stale.append(self)

    def render(self) -> None:
        self.touched = False
        (family,) = self.metric.collect()
        self.lines = _split(render(family))[1]


class Family(Generic[M]):
    """All series of one name. Each part, such as a model, has a metric object of its own, so that what happens to one
    part costs no rendering of the others.
    """

    def __init__(self, make: Callable[[], M]) -> None:
        self._make = make
        self._parts: dict[str, Series[M]] = {}
        self._stale: list[Series[M]] = []
        """Those that have changed since they were rendered."""
        (family,) = make().collect()
        self._header = _split(render(family))[0]
        self._text = self._header
        self._joined = True

    def part(self, name: str = "") -> Series[M]:
        series = self._parts.get(name)
        if series is None:
            series = self._parts[name] = Series(self._make(), self._stale)
        return series

    def text(self) -> Iterator[bytes]:
        """The family, last; empty pieces come before it, one for each series that had to be rendered again."""
        while self._stale:
            self._stale.pop().render()
            # Not after the loop: whoever reads the pieces may stop in between.
            self._joined = False
            yield b""
        if not self._joined:
            self._text = self._header + b"".join([series.lines for series in self._parts.values()])
            self._joined = True
        yield self._text


def render(family: Metric) -> bytes:
    """One family in the text format 0.0.4."""
    return generate_latest(_Alone(family))


def _split(text: bytes) -> tuple[bytes, bytes]:
    """The two lines of HELP and TYPE, and the samples."""
    end = text.index(b"\n", text.index(b"\n") + 1) + 1
    return text[:end], text[end:]


class _Alone(Collector):
    """One family as if it were a whole registry."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric

"""One scrape for everything, in the text that Prometheus reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from router.metrics.families import Labels, levels
from router.metrics.observations import Observations
from router.metrics.series import render
from router.metrics.snapshot import Snapshot

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

TURN = 0.002
"""Seconds of work after which the event loop has a turn."""
PREFIXES_KEPT = 50_000
"""Beginnings of lines that are remembered; models and downloads come and go."""

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Metrics:
    """All metrics of the gateway. `take` reads the tables and changes nothing; a scrape does no more than call it."""

    def __init__(self, observations: Observations, take: Callable[[], Snapshot], states: Iterable[str]) -> None:
        self.observations = observations
        self._take = take
        self._levels = levels(states)
        self._prefixes: dict[tuple[str, Labels], str] = {}
        self._process = ProcessCollector(registry=None)

    async def scrape(self) -> bytes:
        """The text format 0.0.4; see `CONTENT_TYPE`. The tables are read once, at the beginning."""
        parts = []
        began = time.perf_counter()
        for part in self._text(self._take()):
            parts.append(part)
            if time.perf_counter() - began > TURN:
                await asyncio.sleep(0)  # noqa: TID251  (a turn for the others, not a wait)
                began = time.perf_counter()
        return b"".join(parts)

    def _text(self, snapshot: Snapshot) -> Iterator[bytes]:
        yield from self.observations.text()
        for level in self._levels:
            lines = [level.header]
            lines += [f"{self._prefix(level.name, labels)}{number(value)}\n" for labels, value in level.rows(snapshot)]
            yield "".join(lines).encode()
        for family in self._process.collect():
            yield render(family)

    def _prefix(self, name: str, labels: Labels) -> str:
        """A line up to its value."""
        prefix = self._prefixes.get((name, labels))
        if prefix is None:
            if len(self._prefixes) >= PREFIXES_KEPT:
                self._prefixes.clear()
            pairs = ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in labels)
            prefix = self._prefixes[name, labels] = f"{name}{{{pairs}}} " if pairs else f"{name} "
        return prefix


def number(value: float) -> str:
    """A sample's value; whole numbers without a fraction."""
    if isinstance(value, int):
        return str(int(value))
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)

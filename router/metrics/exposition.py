"""One scrape for everything, in the text that Prometheus reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from router.metrics.families import gateway_levels, model_levels, process_levels
from router.metrics.lines import ModelLines, write
from router.metrics.observations import Observations
from router.metrics.process import ProcessReader
from router.metrics.snapshot import Snapshot

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

TURN = 0.002
"""Seconds of work after which the event loop has a turn."""


class Metrics:
    """All metrics of the gateway. `take` reads the tables and changes nothing; a scrape does no more than call it."""

    def __init__(self, observations: Observations, take: Callable[[], Snapshot]) -> None:
        self.observations = observations
        self._take = take
        self._models = ModelLines(model_levels())
        self._process = ProcessReader()

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
        for level in gateway_levels():
            yield level.header.encode()
            yield write(level.name, level.rows(snapshot))
        yield from self._models.text(snapshot.models)
        process = self._process()
        if process is not None:
            for own in process_levels():
                yield own.header.encode()
                yield write(own.name, own.rows(process))

"""`GET /metrics`: everything in one scrape, answered from tables; nothing is loaded, woken or reset by it."""

from __future__ import annotations

import time

import psutil

from router.http.call import Call, Response
from router.http.errors import not_supported
from router.http.replies import Reply
from router.http.routing import Route
from router.http.services import Services
from router.metrics.exposition import CONTENT_TYPE

_STARTED = str(int(psutil.Process().create_time())).encode()


class MetricsRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [Route("GET", "/metrics", self.metrics)]

    async def metrics(self, call: Call) -> Response:
        if self._services.metrics is None:
            raise not_supported("this gateway keeps no metrics")
        began = time.perf_counter()
        text = await self._services.metrics.scrape()
        took = f"scrape;dur={1e3 * (time.perf_counter() - began):.1f}".encode()
        headers = [(b"process-start-time-unix", _STARTED), (b"server-timing", took)]
        return Reply(text, media_type=CONTENT_TYPE.encode(), headers=headers)

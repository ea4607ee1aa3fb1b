"""Health and readiness."""

from __future__ import annotations

from router.http.call import Call, Response
from router.http.errors import ApiError
from router.http.replies import json_reply
from router.http.routing import Route
from router.http.services import Services

OK = {"status": "ok"}


class Ops:
    """`/health` says that the loop and the scheduler live, `/ready` that new requests are welcome."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/health", self.health),
            Route("GET", "/v1/health", self.health),
            Route("GET", "/ready", self.ready),
        ]

    async def health(self, call: Call) -> Response:
        if not self._services.owner.alive:
            raise ApiError(503, "unavailable_error", "the scheduler has stopped")
        return json_reply(OK)

    async def ready(self, call: Call) -> Response:
        if self._services.draining or not self._services.owner.alive:
            raise ApiError(503, "unavailable_error", "the gateway is stopping")
        return json_reply(OK)

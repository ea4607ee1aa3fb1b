"""Health, readiness, the queue, and the version."""

from __future__ import annotations

import time

from router.http.call import Call, Response
from router.http.errors import ApiError
from router.http.replies import json_reply
from router.http.routing import Route
from router.http.services import Services
from router.http.version import VERSION

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
            Route("GET", "/queue", self.queue),
            Route("GET", "/version", self.version),
        ]

    async def health(self, call: Call) -> Response:
        if not self._services.owner.alive:
            raise ApiError(503, "unavailable_error", "the scheduler has stopped")
        return json_reply(OK)

    async def ready(self, call: Call) -> Response:
        if self._services.draining or not self._services.owner.alive:
            raise ApiError(503, "unavailable_error", "the gateway is stopping")
        return json_reply(OK)

    async def queue(self, call: Call) -> Response:
        """Who waits, for what, and what was decided for whom and why. Times are Unix seconds."""
        owner = self._services.owner
        ids = {number: ticket.id for ticket in self._services.inference.tickets() for number in ticket.requests}
        skew = time.time() - time.monotonic()
        return json_reply(
            {
                "waiting": [
                    {
                        "id": ids.get(view.request, str(view.request)),
                        "model": self._name(view.model),
                        "position": view.position,
                        "waited_s": view.waited,
                        "priority": view.priority,
                        "parked": view.parked,
                        "reason": view.blocked,
                    }
                    for view in owner.waiting()
                ],
                "models": [
                    {
                        "model": self._name(view.model),
                        "place": view.place,
                        "waited_s": view.waited,
                        "requests": view.requests,
                        "priority": view.priority,
                        "reason": view.blocked,
                    }
                    for view in owner.queue()
                ],
                "decisions": [
                    {
                        "at": decision.at + skew,
                        "model": self._name(decision.model),
                        "decision": decision.decision,
                        "reason": decision.reason,
                    }
                    for decision in owner.decisions()
                ],
            }
        )

    def _name(self, key: str) -> str:
        """The model's id, for a load key that is still configured."""
        sharing = self._services.catalogue.sharing(key)
        return sharing[0].id if sharing else key

    async def version(self, call: Call) -> Response:
        return json_reply({"version": VERSION})

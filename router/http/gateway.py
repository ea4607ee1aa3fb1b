"""The outermost ASGI application: finds the route, asks for the key, runs the handler, shapes its errors."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from starlette.types import Message, Receive, Scope, Send

from router.http.call import Call, read_headers
from router.http.doorkeeper import Doorkeeper
from router.http.errors import ApiError, ClientGone, Dialect
from router.http.replies import error_reply
from router.http.routing import Route, RouteTable

log = logging.getLogger("llamaherd.http")


class Gateway:
    """One look-up, one key check and one handler per request; no layer that a request does not need."""

    def __init__(
        self,
        routes: Iterable[Route],
        doorkeeper: Doorkeeper,
        *,
        prefix: str = "",
        body_limit: int,
    ) -> None:
        self.routes = RouteTable(routes)
        self._doorkeeper = doorkeeper
        self._prefix = prefix.rstrip("/")
        self._body_limit = body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError(f"cannot serve {scope['type']}")
        headers = read_headers(scope)
        origin = headers.get("origin")
        if origin is not None:
            send = _with_headers(send, self._doorkeeper.cors_headers(origin))
        state = _Started(send)
        dialect = Dialect.OPENAI
        try:
            self._doorkeeper.check_host(headers)
            method = scope["method"]
            if method == "OPTIONS":
                await self._doorkeeper.preflight(origin or "", headers)(scope, receive, state)
                return
            path = self._path(scope["path"])
            dialect = self.routes.dialect(path)
            key = self._doorkeeper.admit(method, path, headers)
            route, params = self.routes.find(method, path)
            call = Call(
                scope,
                receive,
                headers=headers,
                params=params,
                key=key,
                dialect=dialect,
                body_limit=self._body_limit,
            )
            response = await route.handler(call)
            await response(scope, receive, state)
        except ApiError as error:
            await error_reply(dialect, error)(scope, receive, state)
        except ClientGone:
            log.debug("%s %s: 499, the client left", scope["method"], scope["path"])
        except Exception:
            if state.started:
                raise
            log.exception("%s %s failed", scope["method"], scope["path"])
            fault = ApiError(500, "server_error", "internal error of the gateway; its log says more")
            await error_reply(dialect, fault)(scope, receive, state)

    def _path(self, path: str) -> str:
        if not self._prefix:
            return path
        if path == self._prefix or not path.startswith(self._prefix + "/"):
            # Health stays reachable without the prefix: probes are configured apart from clients.
            if path in ("/health", "/ready"):
                return path
            raise ApiError(404, "not_found_error", "File Not Found")
        return path[len(self._prefix) :]


class _Started:
    """A send callable that remembers whether the answer has begun."""

    __slots__ = ("_send", "started")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False

    async def __call__(self, message: Message) -> None:
        self.started = True
        await self._send(message)


def _with_headers(send: Send, extra: list[tuple[bytes, bytes]]) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *extra]
        await send(message)

    return sending

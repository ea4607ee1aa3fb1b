"""One HTTP request as handlers see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from starlette.datastructures import QueryParams
from starlette.types import Receive, Scope, Send

from router.http.errors import ClientGone, Dialect, invalid, too_large
from router.security.keys import Key

NO_QUERY = QueryParams()


def read_headers(scope: Scope) -> dict[str, str]:
    """The request's headers by their names in lower case; of one that is repeated, the last."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


class Response(Protocol):
    """What a handler returns: an ASGI application that sends the answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class Call:
    """A request with its route's parameters and the key that it came with."""

    __slots__ = ("body_limit", "dialect", "headers", "key", "params", "query", "receive", "scope")

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        *,
        headers: Mapping[str, str],
        params: Mapping[str, str],
        key: Key | None,
        dialect: Dialect,
        body_limit: int,
    ) -> None:
        self.scope = scope
        self.receive = receive
        self.headers = headers
        self.params = params
        self.key = key
        self.dialect = dialect
        self.body_limit = body_limit
        self.query = QueryParams(scope["query_string"]) if scope["query_string"] else NO_QUERY

    async def body(self) -> bytes:
        """The whole body. Raises `ApiError` 413 above the limit, `ClientGone` if the client left half-way."""
        declared = self.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self.body_limit:
            raise too_large(self.body_limit)
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > self.body_limit:
                raise too_large(self.body_limit)
            chunks.append(chunk)
            if not message.get("more_body", False):
                return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def may_use(self, *names: str) -> bool:
        """Whether the request's key is for a model of these names."""
        return self.key is None or self.key.may_use(*names)

    def flag(self, name: str, default: bool) -> bool:
        """A boolean query parameter, with llama-server's spellings."""
        value = self.query.get(name)
        if value is None or value == "":
            return default
        if value in ("1", "true"):
            return True
        if value in ("0", "false"):
            return False
        raise invalid(f"{name}: expected true, false, 1 or 0, got '{value}'", name)

    def seconds(self, header: str) -> float | None:
        """A header that holds a number of seconds."""
        value = self.headers.get(header)
        if value is None:
            return None
        try:
            number = float(value)
        except ValueError as error:
            raise invalid(f"{header}: expected a number of seconds, got '{value}'", header) from error
        if number != number or number in (float("inf"), float("-inf")):
            raise invalid(f"{header}: expected a number of seconds, got '{value}'", header)
        return number

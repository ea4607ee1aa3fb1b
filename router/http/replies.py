"""Complete answers: a status, a few headers and one body."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from router.http import errors, sse
from router.http.errors import ApiError, Dialect

JSON = b"application/json; charset=utf-8"

Headers = Sequence[tuple[bytes, bytes]]


class Reply:
    """An answer whose body is known. HEAD requests get its headers alone."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, body: bytes, *, media_type: bytes = JSON, status: int = 200, headers: Headers = ()) -> None:
        self.status = status
        self.body = body
        self.headers = [
            (b"content-type", media_type),
            (b"content-length", str(len(body)).encode()),
            *headers,
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


class Empty:
    """204: done, nothing to say."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def json_reply(value: object, status: int = 200, headers: Headers = ()) -> Reply:
    return Reply(sse.to_json(value), status=status, headers=headers)


def error_reply(dialect: Dialect, error: ApiError) -> Reply:
    return Reply(errors.body(dialect, error), status=error.status, headers=error.headers())

"""From a request stream to an HTTP response: held headers, then the body, for as long as the client is there."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.types import Receive, Scope, Send

from protocol.errors import ErrorKind, WireError
from router.http.connection import WhileConnected
from router.http.errors import Dialect, from_wire
from router.inference import Inference, Ticket
from router.transport.stream import Outcome, ReaderTooSlow, RequestStream

STREAM_HEADERS = [
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


REQUEST_ID = {
    Dialect.OPENAI: b"x-request-id",
    Dialect.ANTHROPIC: b"request-id",
    Dialect.OLLAMA: b"x-request-id",
}
"""Where each dialect's clients look for the id that a request can be cancelled by."""


class StreamAnswer:
    """Sends what a request brings. Headers wait for the first output or `early_headers` seconds of silence, so that
    an error until then keeps its status. A client that leaves gives its request up at once.
    """

    def __init__(self, inference: Inference, ticket: Ticket, early_headers: float, dialect: Dialect) -> None:
        self._inference = inference
        self._ticket = ticket
        self._early_headers = early_headers
        self._headers = [(REQUEST_ID[dialect], ticket.id.encode())]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = self._ticket.stream
        stream.attach()
        try:
            with WhileConnected(receive):
                if stream.encoder.streams:
                    await self._send_stream(stream, send)
                else:
                    await self._send_body(stream, send)
        finally:
            stream.detach()
            self._inference.left(self._ticket)

    async def _send_body(self, stream: RequestStream, send: Send) -> None:
        await stream.outcome()
        # A failure half-way is no body: nothing has been sent, so the status can still say it.
        if stream.failure is not None:
            raise from_wire(stream.failure)
        body = await stream.read(0)
        headers = [
            (b"content-type", stream.encoder.media_type.encode()),
            (b"content-length", str(len(body)).encode()),
            *self._headers,
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _send_stream(self, stream: RequestStream, send: Send) -> None:
        outcome = await stream.outcome(self._early_headers)
        if outcome is Outcome.FAILED and stream.failure is not None:
            # The client knows: there is nothing to come back for.
            self._inference.forget(self._ticket)
            raise from_wire(stream.failure)
        await send_stream(stream, 0, self._headers, send)


async def send_stream(stream: RequestStream, offset: int, headers: Sequence[tuple[bytes, bytes]], send: Send) -> None:
    """Send a stream's bytes from `offset` on, until it ends. Each send holds the events made since the last one."""
    content_type = (b"content-type", stream.encoder.media_type.encode())
    await send({"type": "http.response.start", "status": 200, "headers": [content_type, *STREAM_HEADERS, *headers]})
    more = True
    while more:
        try:
            data = await stream.read(offset)
        except ReaderTooSlow as error:
            data = stream.encoder.error(WireError(ErrorKind.READER_TOO_SLOW, f"this reader is too slow: {error}"))
            await send({"type": "http.response.body", "body": data})
            return
        offset += len(data)
        more = not (stream.ended and offset == stream.end)
        await send({"type": "http.response.body", "body": data, "more_body": more})

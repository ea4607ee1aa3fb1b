"""Kept streams over HTTP: read again from any byte, stopped, and looked up."""

from __future__ import annotations

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from router.http.answering import send_stream
from router.http.call import Call, Response
from router.http.connection import WhileConnected
from router.http.decoding import decode
from router.http.errors import from_wire, invalid, not_found
from router.http.replies import Empty, json_reply
from router.http.routing import Route
from router.http.services import Services, owner_of
from router.inference import Ticket
from router.transport.stream import Outcome

MAX_IDS = 1000


class LookupRequest(Struct):
    conversation_ids: list[str] | None = None


_lookup: msgspec.json.Decoder[LookupRequest] = msgspec.json.Decoder(LookupRequest)


class Streams:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/stream", self.read),
            Route("DELETE", "/v1/stream", self.stop),
            Route("POST", "/v1/streams/lookup", self.lookup),
            Route("DELETE", "/requests/{id}", self.cancel),
        ]

    async def read(self, call: Call) -> Response:
        entry = self._services.conversations.find(_conversation(call), owner_of(call))
        if entry is None:
            raise not_found("Stream not found or expired")
        offset = _offset(call)
        stream = entry.ticket.stream
        if offset < stream.start:
            raise invalid("Stream offset lost, please restart", "from")
        if offset > stream.end:
            raise invalid(f"Invalid 'from' offset: the stream has {stream.end} bytes", "from")
        return Replay(entry.ticket, offset, self._services.settings.early_headers_ms / 1e3)

    async def stop(self, call: Call) -> Response:
        self._services.conversations.stop(_conversation(call), owner_of(call))
        return Empty()

    async def lookup(self, call: Call) -> Response:
        request = decode(_lookup, await call.body())
        ids = request.conversation_ids
        if ids is None:
            raise invalid("'conversation_ids' must be an array of strings", "conversation_ids")
        if len(ids) > MAX_IDS:
            raise invalid(f"conversation_ids: at most {MAX_IDS} at once", "conversation_ids")
        found = self._services.conversations.known(ids, owner_of(call))
        return json_reply(
            [
                {
                    "conversation_id": entry.id,
                    "is_done": entry.ticket.stream.ended,
                    "total_bytes": entry.ticket.stream.end,
                    "started_at": int(entry.ticket.stream.created),
                    "completed_at": int(entry.ticket.stream.completed),
                }
                for entry in found
            ]
        )

    async def cancel(self, call: Call) -> Response:
        ticket = self._services.inference.find(call.params["id"], owner_of(call))
        if ticket is None or ticket.stream.ended:
            raise not_found(f"no running request has the id '{call.params['id']}'")
        self._services.inference.cancel(ticket, "the request was cancelled")
        return json_reply({"success": True})


class Replay:
    """One more reader of a kept stream, from a byte that it names. Its leaving changes nothing for the request."""

    def __init__(self, ticket: Ticket, offset: int, early_headers: float) -> None:
        self._ticket = ticket
        self._offset = offset
        self._early_headers = early_headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = self._ticket.stream
        stream.attach()
        try:
            with WhileConnected(receive):
                outcome = await stream.outcome(self._early_headers) if self._offset == 0 else Outcome.OUTPUT
                if outcome is Outcome.FAILED and stream.failure is not None:
                    raise from_wire(stream.failure)
                await send_stream(stream, self._offset, [(b"x-request-id", self._ticket.id.encode())], send)
        finally:
            stream.detach()


def _conversation(call: Call) -> str:
    conversation = call.query.get("conv_id", "")
    if not conversation:
        raise invalid("Missing conversation id in path", "conv_id")
    return conversation


def _offset(call: Call) -> int:
    text = call.query.get("from", "0")
    if not text.isdecimal() or len(text) > 18:
        raise invalid("Invalid 'from' offset", "from")
    return int(text)

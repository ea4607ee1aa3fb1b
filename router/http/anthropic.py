"""`/v1/messages` and its token counter."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.codec import Answer
from protocol.text import TokensCounted
from router.http import sse
from router.http.anthropic_encoder import MessageBody, MessageEvents
from router.http.anthropic_request import MessagesRequest, chat_prompt
from router.http.call import Call, Response
from router.http.decoding import decode
from router.http.errors import Dialect
from router.http.generation import count, generate
from router.http.routing import Route
from router.http.sampling import schema_constraint
from router.http.services import Services
from router.http.single import SingleBody
from router.transport.encoder import Encoder

_request: msgspec.json.Decoder[MessagesRequest] = msgspec.json.Decoder(MessagesRequest)


class Messages:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/v1/messages", self.create, Dialect.ANTHROPIC),
            Route("POST", "/v1/messages/count_tokens", self.count_tokens, Dialect.ANTHROPIC),
        ]

    async def create(self, call: Call) -> Response:
        request = decode(_request, await call.body())
        model = self._services.model(call, request.model)
        stop = request.stop_sequences or []
        wanted = request.format
        work = generate(
            request,
            await self._services.with_files(chat_prompt(request, model.request), model),
            model,
            stop=stop,
            constraint=None if wanted is None else schema_constraint(bytes(wanted.schema), "output_format.schema"),
        )
        work = msgspec.structs.replace(work, n=1)
        id = sse.random_id("msg_")
        encoder: Encoder = MessageEvents(id, model.id, stop) if request.stream else MessageBody(id, model.id, stop)
        return self._services.answer(call, id, model, work, encoder)

    async def count_tokens(self, call: Call) -> Response:
        request = decode(_request, await call.body())
        model = self._services.model(call, request.model)
        prompt = await self._services.with_files(chat_prompt(request, model.request), model)
        work = count(prompt, model)
        return self._services.answer(call, sse.random_id("cnt_"), model, work, SingleBody(_count, Dialect.ANTHROPIC))


def _count(answer: Answer) -> dict[str, Any] | None:
    return {"input_tokens": answer.n_tokens} if isinstance(answer, TokensCounted) else None

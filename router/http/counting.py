"""OpenAI's token counters."""

from __future__ import annotations

from typing import Any

import msgspec

from protocol.codec import Answer
from protocol.text import TokensCounted
from router.http import sse
from router.http.call import Call, Response
from router.http.chat_request import ChatFields, chat_prompt
from router.http.decoding import decode
from router.http.generation import count
from router.http.responses_request import ResponsesRequest, responses_prompt
from router.http.routing import Route
from router.http.services import Services, owner_of
from router.http.single import SingleBody

_chat: msgspec.json.Decoder[ChatFields] = msgspec.json.Decoder(ChatFields)
_responses: msgspec.json.Decoder[ResponsesRequest] = msgspec.json.Decoder(ResponsesRequest)


class TokenCounters:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/v1/chat/completions/input_tokens", self.chat),
            Route("POST", "/chat/completions/input_tokens", self.chat),
            Route("POST", "/v1/responses/input_tokens", self.responses),
            Route("POST", "/responses/input_tokens", self.responses),
        ]

    async def chat(self, call: Call) -> Response:
        request = decode(_chat, await call.body())
        model = self._services.model(call, request.model)
        prompt = await self._services.with_files(chat_prompt(request, model.request), model)
        work = count(prompt, model)
        return self._services.answer(call, sse.random_id("cnt-"), model, work, SingleBody(_count))

    async def responses(self, call: Call) -> Response:
        request = decode(_responses, await call.body())
        model = self._services.model(call, request.model)
        history = self._services.responses.history(request.previous_response_id, owner_of(call))
        prompt = await self._services.with_files(responses_prompt(request, model.request, history), model)
        work = count(prompt, model)
        return self._services.answer(call, sse.random_id("cnt-"), model, work, SingleBody(_count))


def _count(answer: Answer) -> dict[str, Any] | None:
    if not isinstance(answer, TokensCounted):
        return None
    return {"object": "response.input_tokens", "input_tokens": answer.n_tokens}

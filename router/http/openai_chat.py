"""`/v1/chat/completions`."""

from __future__ import annotations

import time

import msgspec

from router.http import sse
from router.http.call import Call, Response
from router.http.chat_encoder import ChatBody, ChatChunks
from router.http.chat_request import ChatRequest, chat_prompt, constraint, n_probs
from router.http.decoding import decode
from router.http.generation import generate
from router.http.routing import Route
from router.http.services import Services
from router.transport.encoder import Encoder

_request: msgspec.json.Decoder[ChatRequest] = msgspec.json.Decoder(ChatRequest)


class ChatCompletions:
    """OpenAI's chat, with all of llama-server's fields."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [Route("POST", path, self.complete) for path in ("/v1/chat/completions", "/chat/completions")]

    async def complete(self, call: Call) -> Response:
        request = decode(_request, await call.body())
        model = self._services.model(call, request.model)
        work = generate(
            request,
            await self._services.with_files(chat_prompt(request, model.request), model),
            model,
            n_probs=n_probs(request),
            constraint=constraint(request.response_format),
        )
        id = sse.random_id("chatcmpl-")
        created = int(time.time())
        as_probabilities = work.sampling.post_sampling_probs
        encoder: Encoder
        if request.stream:
            options = request.stream_options
            encoder = ChatChunks(
                id,
                model.id,
                created,
                n=work.n,
                include_usage=options is not None and bool(options.include_usage),
                as_probabilities=as_probabilities,
            )
        else:
            encoder = ChatBody(id, model.id, created, n=work.n, as_probabilities=as_probabilities)
        return self._services.answer(call, id, model, work, encoder)

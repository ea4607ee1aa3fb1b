"""Ollama's API for generating: chat, generate and embeddings."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import Struct

from protocol.codec import Answer
from protocol.embed import Embedded
from protocol.generate import Generate
from router.config.model import Model
from router.http import sse
from router.http.call import Call, Response
from router.http.decoding import decode
from router.http.embeddings import embed, floats
from router.http.errors import Dialect, invalid
from router.http.fields import Positive
from router.http.generation import generate
from router.http.ollama_encoder import Body, Lines, duration, timestamp
from router.http.ollama_request import (
    ChatRequest,
    GenerateRequest,
    Request,
    chat_prompt,
    check_context,
    constraint,
    generate_prompt,
    keep_alive,
)
from router.http.prompts import PromptField, prompts
from router.http.replies import Reply
from router.http.routing import Route
from router.http.services import Services
from router.http.single import SingleBody
from router.scheduling.events import LoadAsked, UnloadAsked
from router.transport.encoder import Encoder


class EmbedRequest(Struct, kw_only=True):
    """`prompt` is what the older `/api/embeddings` calls its one input."""

    model: str | None = None
    input: PromptField | None = None
    prompt: str | None = None
    dimensions: Positive | None = None
    keep_alive: str | float | None = None


_chat: msgspec.json.Decoder[ChatRequest] = msgspec.json.Decoder(ChatRequest)
_generate: msgspec.json.Decoder[GenerateRequest] = msgspec.json.Decoder(GenerateRequest)
_embed: msgspec.json.Decoder[EmbedRequest] = msgspec.json.Decoder(EmbedRequest)


class Ollama:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/api/chat", self.chat, Dialect.OLLAMA),
            Route("POST", "/api/generate", self.generate, Dialect.OLLAMA),
            Route("POST", "/api/embed", self.embed, Dialect.OLLAMA),
            Route("POST", "/api/embeddings", self.embeddings, Dialect.OLLAMA),
        ]

    async def chat(self, call: Call) -> Response:
        request = decode(_chat, await call.body())
        model = self._model(call, request)
        if not request.messages:
            return self._load(model, request, chat=True)
        work = generate(
            request.fields, chat_prompt(request, model.request), model, constraint=constraint(request.format)
        )
        return self._answer(call, model, request, work, chat=True)

    async def generate(self, call: Call) -> Response:
        request = decode(_generate, await call.body())
        model = self._model(call, request)
        if not request.prompt and not request.images:
            return self._load(model, request, chat=False)
        work = generate(
            request.fields, generate_prompt(request, model.request), model, constraint=constraint(request.format)
        )
        return self._answer(call, model, request, work, chat=False)

    def _model(self, call: Call, request: Request) -> Model:
        model = self._services.model(call, request.model)
        check_context(request, model, self._services.owner.info(model.key))
        return model

    def _answer(self, call: Call, model: Model, request: Request, work: Generate, *, chat: bool) -> Response:
        # Clients look for the name that they sent.
        name = request.model or model.id
        encoder: Encoder = Lines(name, chat=chat) if request.stream is not False else Body(name, chat=chat)
        work = msgspec.structs.replace(work, n=1)
        idle = keep_alive(request.keep_alive)
        return self._services.answer(call, sse.random_id("oll-"), model, work, encoder, keep_alive=idle)

    def _load(self, model: Model, request: Request, *, chat: bool) -> Response:
        """A request without anything to say loads the model, or unloads it with `keep_alive` 0."""
        unload = keep_alive(request.keep_alive) == 0
        if unload:
            self._services.owner.post(UnloadAsked(model.key, name=model.id))
        else:
            self._services.owner.post(LoadAsked(model.key, name=model.id))
        value: dict[str, Any] = {"model": request.model or model.id, "created_at": timestamp()}
        value.update({"message": {"role": "assistant", "content": ""}} if chat else {"response": ""})
        value.update(done=True, done_reason="unload" if unload else "load")
        if request.stream is False:
            return Reply(sse.to_json(value))
        return Reply(sse.to_json(value) + b"\n", media_type=b"application/x-ndjson")

    async def embed(self, call: Call) -> Response:
        request = decode(_embed, await call.body())
        model = self._services.model(call, request.model)
        start = time.monotonic()
        work = embed(prompts(request.input, "input"), model, 2, request.dimensions)
        name = request.model or model.id
        encoder = SingleBody(lambda answer: _vectors(answer, name, start), Dialect.OLLAMA)
        idle = keep_alive(request.keep_alive)
        return self._services.answer(call, sse.random_id("oll-"), model, work, encoder, keep_alive=idle)

    async def embeddings(self, call: Call) -> Response:
        request = decode(_embed, await call.body())
        model = self._services.model(call, request.model)
        if request.prompt is None:
            raise invalid("'prompt' is required", "prompt")
        work = embed(prompts(request.prompt, "prompt"), model, 2)
        encoder = SingleBody(_one_vector, Dialect.OLLAMA)
        idle = keep_alive(request.keep_alive)
        return self._services.answer(call, sse.random_id("oll-"), model, work, encoder, keep_alive=idle)


def _vectors(answer: Answer, model: str, start: float) -> dict[str, Any] | None:
    if not isinstance(answer, Embedded):
        return None
    return {
        "model": model,
        "embeddings": [floats(vectors[0]) for vectors in answer.vectors],
        "total_duration": duration(start),
        "load_duration": 0,
        "prompt_eval_count": sum(answer.n_tokens),
    }


def _one_vector(answer: Answer) -> dict[str, Any] | None:
    return {"embedding": floats(answer.vectors[0][0])} if isinstance(answer, Embedded) else None

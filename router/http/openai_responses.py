"""`/v1/responses`."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from protocol.chat import ChatMessage
from router.http import sse
from router.http.call import Call, Response
from router.http.decoding import decode
from router.http.generation import generate
from router.http.responses_encoder import ResponseBody, ResponseEvents
from router.http.responses_request import (
    ResponsesRequest,
    input_messages,
    responses_prompt,
    text_constraint,
)
from router.http.routing import Route
from router.http.services import Services, owner_of
from router.transport.encoder import Encoder

_request: msgspec.json.Decoder[ResponsesRequest] = msgspec.json.Decoder(ResponsesRequest)


class Responses:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [Route("POST", path, self.create) for path in ("/v1/responses", "/responses")]

    async def create(self, call: Call) -> Response:
        request = decode(_request, await call.body())
        model = self._services.model(call, request.model)
        store, owner = self._services.responses, owner_of(call)
        history = store.history(request.previous_response_id, owner)
        if request.max_output_tokens is not None:
            request.max_tokens = request.max_output_tokens
        work = generate(
            request,
            await self._services.with_files(responses_prompt(request, model.request, history), model),
            model,
            n_probs=max(request.top_logprobs or 0, 0),
            constraint=text_constraint(request),
        )
        work = msgspec.structs.replace(work, n=1)
        id = sse.random_id("resp_")
        before = (*history, *input_messages(request))

        def said(message: ChatMessage) -> None:
            if request.store is not False:
                store.put(id, owner, (*before, message))

        base = skeleton(request, id, model.id, work.sampling.temperature, work.sampling.top_p)
        encoder: Encoder = ResponseEvents(base, said) if request.stream else ResponseBody(base, said)
        return self._services.answer(call, id, model, work, encoder)


def skeleton(request: ResponsesRequest, id: str, model: str, temperature: float, top_p: float) -> dict[str, Any]:
    """The response object without what the model says."""
    reasoning = request.reasoning
    choice = request.tool_choice
    return {
        "id": id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": request.instructions,
        "max_output_tokens": request.max_output_tokens,
        "metadata": request.metadata or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": request.parallel_tool_calls is not False,
        "previous_response_id": request.previous_response_id,
        "reasoning": {"effort": reasoning.effort if reasoning is not None else None, "summary": None},
        "store": request.store is not False,
        "temperature": temperature,
        "text": {"format": _text_format(request)},
        "tool_choice": "auto" if choice is None else choice,
        "tools": [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters if bytes(tool.parameters) else {},
                "strict": tool.strict,
            }
            for tool in request.tools or ()
        ],
        "top_p": top_p,
        "truncation": "disabled",
        "usage": None,
    }


def _text_format(request: ResponsesRequest) -> dict[str, Any]:
    wanted = request.text.format if request.text is not None else None
    if wanted is None:
        return {"type": "text"}
    value: dict[str, Any] = {"type": wanted.type}
    if wanted.type == "json_schema":
        value.update(name=wanted.name, schema=wanted.schema, strict=wanted.strict)
    return value

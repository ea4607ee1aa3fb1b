"""`/openapi.json`: the routes, and the shapes of their bodies as the gateway decodes them."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from router.http import (
    anthropic_request,
    chat_request,
    embeddings,
    native_completion,
    native_server,
    native_text,
    ollama,
    ollama_models,
    ollama_pull,
    ollama_request,
    openai_completions,
    rerank,
    responses_request,
    streams,
)
from router.http.call import Call, Response
from router.http.fields import LoraField
from router.http.models import ModelRequest
from router.http.replies import Reply
from router.http.routing import Route
from router.http.services import Services
from router.http.sse import to_json
from router.http.version import VERSION
from router.security.scopes import Access
from router.security.table import find_rule

BODIES: dict[str, Any] = {
    "/v1/chat/completions": chat_request.ChatRequest,
    "/chat/completions": chat_request.ChatRequest,
    "/v1/chat/completions/input_tokens": chat_request.ChatFields,
    "/chat/completions/input_tokens": chat_request.ChatFields,
    "/v1/chat/completions/control": native_server.ControlRequest,
    "/v1/completions": openai_completions.CompletionRequest,
    "/v1/responses": responses_request.ResponsesRequest,
    "/responses": responses_request.ResponsesRequest,
    "/v1/responses/input_tokens": responses_request.ResponsesRequest,
    "/responses/input_tokens": responses_request.ResponsesRequest,
    "/v1/embeddings": embeddings.EmbeddingRequest,
    "/embeddings": embeddings.EmbeddingRequest,
    "/embedding": embeddings.EmbeddingRequest,
    "/v1/rerank": rerank.RerankRequest,
    "/v1/reranking": rerank.RerankRequest,
    "/rerank": rerank.RerankRequest,
    "/reranking": rerank.RerankRequest,
    "/v1/messages": anthropic_request.MessagesRequest,
    "/v1/messages/count_tokens": anthropic_request.MessagesRequest,
    "/completion": native_completion.NativeRequest,
    "/completions": native_completion.NativeRequest,
    "/infill": native_completion.InfillRequest,
    "/tokenize": native_text.TokenizeRequest,
    "/detokenize": native_text.DetokenizeRequest,
    "/apply-template": chat_request.ChatFields,
    "/slots/{id}": native_server.SlotRequest,
    "/lora-adapters": list[LoraField],
    "/v1/streams/lookup": streams.LookupRequest,
    "/models/load": ModelRequest,
    "/models/unload": ModelRequest,
    "/models/pin": ModelRequest,
    "/models/unpin": ModelRequest,
    "/api/chat": ollama_request.ChatRequest,
    "/api/generate": ollama_request.GenerateRequest,
    "/api/embed": ollama.EmbedRequest,
    "/api/embeddings": ollama.EmbedRequest,
    "/api/show": ollama_models.NameRequest,
    "/api/copy": ollama_models.CopyRequest,
    "/api/pull": ollama_pull.PullRequest,
    "/api/delete": ollama_models.NameRequest,
}
"""The struct behind each body. Paths that are not here take no JSON, or what their own modules say."""

QUERIES: dict[str, tuple[str, ...]] = {
    "/v1/stream": ("conv_id", "from"),
    "/slots/{id}": ("action", "model"),
    "/slots": ("model", "fail_on_no_slot"),
    "/props": ("model",),
    "/lora-adapters": ("model",),
    "/models": ("reload", "model", "purge"),
}

_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


class OpenApi:
    """The document is made once, when it is first asked for."""

    def __init__(self, services: Services) -> None:
        self._document = b""
        self._prefix = services.settings.api_prefix
        self.all: list[Route] = []
        """The routes to describe; set once all of them are known."""

    def routes(self) -> list[Route]:
        return [Route("GET", "/openapi.json", self.show)]

    async def show(self, call: Call) -> Response:
        if not self._document:
            self._document = to_json(document(self.all, self._prefix))
        return Reply(self._document)


def document(routes: list[Route], prefix: str = "") -> dict[str, Any]:
    """The OpenAPI document of these routes."""
    types = list(dict.fromkeys(str(body) for body in BODIES.values()))
    unique = {str(body): body for body in BODIES.values()}
    schemas, components = msgspec.json.schema_components(
        [unique[name] for name in types], ref_template="#/components/schemas/{name}"
    )
    shapes = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        body = BODIES.get(route.path) if route.method in ("POST", "DELETE") else None
        shape = shapes[str(body)] if body is not None else None
        path = _PARAMETER.sub(r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = operation(route, shape)
    return {
        "openapi": "3.1.0",
        "info": {"title": "llamaherd", "version": VERSION},
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def operation(route: Route, body: dict[str, Any] | None) -> dict[str, Any]:
    """What one method of one path takes, and the ways in which it answers."""
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PARAMETER.findall(route.path)
    ]
    parameters += [{"name": name, "in": "query", "schema": {"type": "string"}} for name in QUERIES.get(route.path, ())]
    value: dict[str, Any] = {
        "operationId": f"{route.method.lower()} {route.path}",
        "responses": {"default": {"description": "The answer, or an error in the dialect's shape."}},
    }
    if parameters:
        value["parameters"] = parameters
    if body is not None:
        value["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    rule = find_rule(route.method, _PARAMETER.sub("x", route.path))
    if rule is not None and rule.access is not Access.PUBLIC:
        value["security"] = [{"key": []}]
        value["x-scope"] = rule.access.value
    return value

"""Reranking, in Jina's shape and in that of Text Embeddings Inference (TEI)."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from protocol.codec import Answer
from protocol.embed import Rerank, Reranked
from router.http import sse
from router.http.call import Call, Response
from router.http.decoding import decode
from router.http.errors import invalid
from router.http.fields import Count
from router.http.routing import Route
from router.http.services import Services
from router.http.single import SingleBody

MAX_DOCUMENTS = 4096


class Document(Struct):
    text: str


class RerankRequest(Struct, kw_only=True):
    """`texts` instead of `documents` asks for TEI's shape."""

    model: str | None = None
    query: str | None = None
    documents: list[str | Document] | None = None
    texts: list[str] | None = None
    top_n: Count | None = None
    return_text: bool | None = None
    return_documents: bool | None = None


_request: msgspec.json.Decoder[RerankRequest] = msgspec.json.Decoder(RerankRequest)


class Reranking:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        paths = ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking")
        return [Route("POST", path, self.rerank) for path in paths]

    async def rerank(self, call: Call) -> Response:
        request = decode(_request, await call.body())
        model = self._services.model(call, request.model)
        if not request.query:
            raise invalid("'query' must be a non-empty string", "query")
        if request.documents is None and request.texts is None:
            raise invalid("'documents' is required", "documents")
        documents = texts(request)
        if not documents:
            raise invalid("'documents' must be a non-empty array of strings", "documents")
        if len(documents) > MAX_DOCUMENTS:
            raise invalid(f"documents: at most {MAX_DOCUMENTS} at once, not {len(documents)}", "documents")
        work = Rerank(request=0, query=request.query, documents=tuple(documents))
        encoder = SingleBody(lambda answer: shape(answer, request, documents, model.id))
        return self._services.answer(call, sse.random_id("rank-"), model, work, encoder)


def texts(request: RerankRequest) -> list[str]:
    if request.texts is not None:
        return request.texts
    return [document if isinstance(document, str) else document.text for document in request.documents or ()]


def shape(answer: Answer, request: RerankRequest, documents: list[str], model: str) -> object | None:
    """The best `top_n`, most relevant first."""
    if not isinstance(answer, Reranked):
        return None
    order = sorted(range(len(documents)), key=lambda index: answer.scores[index], reverse=True)
    order = order[: len(documents) if request.top_n is None else request.top_n]
    if request.texts is not None:
        return [_tei(index, answer.scores[index], documents[index], bool(request.return_text)) for index in order]
    results: list[dict[str, Any]] = []
    for index in order:
        result: dict[str, Any] = {"index": index, "relevance_score": answer.scores[index]}
        if request.return_documents:
            result["document"] = {"text": documents[index]}
        results.append(result)
    return {
        "model": model,
        "object": "list",
        "usage": {"prompt_tokens": answer.n_tokens, "total_tokens": answer.n_tokens},
        "results": results,
    }


def _tei(index: int, score: float, text: str, return_text: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"index": index, "score": score}
    if return_text:
        result["text"] = text
    return result

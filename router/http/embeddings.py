"""Embeddings in OpenAI's and in llama-server's shape."""

from __future__ import annotations

import base64
import sys
from array import array
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from protocol.chat import Prompt
from protocol.codec import Answer
from protocol.embed import Embed, Embedded
from router.config.model import Model
from router.http import sse
from router.http.call import Call, Response
from router.http.decoding import decode
from router.http.errors import invalid
from router.http.fields import Positive
from router.http.generation import pick
from router.http.prompts import PromptField, prompts
from router.http.routing import Route
from router.http.services import Services
from router.http.single import SingleBody

Norm = Annotated[int, Meta(ge=-1, le=64)]


class EmbeddingRequest(Struct, kw_only=True):
    """`content` is llama-server's name for `input`; with it the answer has llama-server's shape."""

    model: str | None = None
    input: PromptField | None = None
    content: PromptField | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Positive | None = None
    embd_normalize: Norm | None = None


_request: msgspec.json.Decoder[EmbeddingRequest] = msgspec.json.Decoder(EmbeddingRequest)


class Embeddings:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/v1/embeddings", self.openai),
            Route("POST", "/embeddings", self.native),
            Route("POST", "/embedding", self.native),
        ]

    async def openai(self, call: Call) -> Response:
        request = decode(_request, await call.body())
        return self._embed(call, request, native=request.content is not None)

    async def native(self, call: Call) -> Response:
        return self._embed(call, decode(_request, await call.body()), native=True)

    def _embed(self, call: Call, request: EmbeddingRequest, *, native: bool) -> Response:
        model = self._services.model(call, request.model)
        name = "input" if request.content is None else "content"
        inputs = prompts(request.input if request.content is None else request.content, name)
        work = embed(inputs, model, request.embd_normalize, request.dimensions)
        shape: Callable[[Answer], object | None]
        if native:
            shape = native_shape
        else:
            as_base64 = request.encoding_format == "base64"
            shape = lambda answer: openai_shape(answer, model.id, as_base64=as_base64)  # noqa: E731
        return self._services.answer(call, sse.random_id("embd-"), model, work, SingleBody(shape))


def embed(inputs: list[Prompt], model: Model, normalize: int | None = None, dimensions: int | None = None) -> Embed:
    """The work of one request for embeddings."""
    if not inputs:
        raise invalid("'input' must not be empty", "input")
    return Embed(
        request=0,
        inputs=tuple(inputs),
        normalize=pick(normalize, model.request.embd_normalize),
        dimensions=dimensions or 0,
    )


def floats(vector: bytes) -> list[float]:
    """The numbers of a little-endian float32 vector."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def native_shape(answer: Answer) -> list[dict[str, Any]] | None:
    if not isinstance(answer, Embedded):
        return None
    return [
        {"index": index, "embedding": [floats(vector) for vector in vectors]}
        for index, vectors in enumerate(answer.vectors)
    ]


def openai_shape(answer: Answer, model: str, *, as_base64: bool) -> dict[str, Any] | None:
    """One vector per input; a model without pooling, which has one per token, gets an array of them."""
    if not isinstance(answer, Embedded):
        return None
    data: list[dict[str, Any]] = []
    for index, vectors in enumerate(answer.vectors):
        if as_base64:
            encoded = base64.b64encode(b"".join(vectors)).decode()
            data.append({"object": "embedding", "index": index, "embedding": encoded, "encoding_format": "base64"})
        else:
            numbers: object = floats(vectors[0]) if len(vectors) == 1 else [floats(vector) for vector in vectors]
            data.append({"object": "embedding", "index": index, "embedding": numbers})
    tokens = sum(answer.n_tokens)
    return {
        "object": "list",
        "model": model,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "data": data,
    }

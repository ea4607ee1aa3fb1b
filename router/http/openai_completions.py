"""`/v1/completions`: text in, text out, several prompts at once."""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from protocol.codec import Answer
from protocol.errors import WireError
from protocol.generate import ChoiceEnd, Delta, TokenLogprob
from router.http import errors, sse, usage
from router.http.call import Call, Response
from router.http.chat_request import MAX_TOP_LOGPROBS, ResponseFormat, constraint
from router.http.collector import Collector
from router.http.decoding import decode
from router.http.errors import Dialect, invalid, not_supported
from router.http.fields import GenerationFields
from router.http.generation import generate
from router.http.prompts import PromptField, prompts
from router.http.routing import Route
from router.http.services import Services
from router.http.version import FINGERPRINT
from router.transport.encoder import Encoder


class CompletionRequest(GenerationFields, kw_only=True):
    prompt: PromptField | None = None
    suffix: str | None = None
    echo: bool | None = None
    best_of: int | None = None
    logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    response_format: ResponseFormat | None = None


_request: msgspec.json.Decoder[CompletionRequest] = msgspec.json.Decoder(CompletionRequest)


class Completions:
    """OpenAI's older endpoint. `/completions` is llama-server's native one and lives elsewhere."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [Route("POST", "/v1/completions", self.complete)]

    async def complete(self, call: Call) -> Response:
        request = decode(_request, await call.body())
        model = self._services.model(call, request.model)
        if request.best_of is not None and request.best_of > (request.n or 1):
            raise not_supported("best_of above n is not supported")
        if request.suffix and request.echo:
            raise invalid("echo cannot be combined with suffix", "echo")
        works = [
            generate(
                request,
                prompt,
                model,
                n_probs=0 if request.logprobs is None else max(request.logprobs, 1),
                constraint=constraint(request.response_format),
                suffix=request.suffix or "",
                echo=bool(request.echo),
            )
            for prompt in prompts(request.prompt)
        ]
        id = sse.random_id("cmpl-")
        n = sum(work.n for work in works)
        options = request.stream_options
        encoder: Encoder
        if request.stream:
            include_usage = options is not None and bool(options.include_usage)
            encoder = CompletionChunks(id, model.id, int(time.time()), n=n, include_usage=include_usage)
        else:
            encoder = CompletionBody(id, model.id, int(time.time()), n=n)
        return self._services.answer_all(call, id, model, works, encoder)


class CompletionChunks:
    """The streamed form."""

    media_type = "text/event-stream"
    streams = True
    comments = True

    def __init__(self, id: str, model: str, created: int, *, n: int, include_usage: bool) -> None:
        self._include_usage = include_usage
        head = sse.to_json(
            {
                "id": id,
                "object": "text_completion",
                "created": created,
                "model": model,
                "system_fingerprint": FINGERPRINT,
            }
        )
        self._head = b"data: " + head[:-1]
        self._text = [self._head + b',"choices":[{"index":%d,"text":' % index for index in range(n)]
        self._tail = b',"logprobs":null,"finish_reason":null}]}\n\n'
        self._n = n
        self._offsets = [0] * n

    def begin(self) -> bytes:
        self._offsets = [0] * self._n
        return b""

    def delta(self, delta: Delta) -> bytes:
        offset = self._offsets[delta.index]
        self._offsets[delta.index] += len(delta.text)
        if delta.extra is None:
            return self._text[delta.index] + sse.to_json(delta.text) + self._tail if delta.text else b""
        choice: dict[str, Any] = {"index": delta.index, "text": delta.text, "logprobs": None, "finish_reason": None}
        beside: dict[str, Any] = {}
        if delta.extra.logprobs:
            choice["logprobs"] = logprobs(delta.extra.logprobs, offset)
        if delta.extra.progress is not None:
            beside["prompt_progress"] = usage.progress(delta.extra.progress)
        if delta.extra.timings is not None:
            beside["timings"] = usage.timings(delta.extra.timings)
        if not delta.text and not beside and not delta.extra.logprobs:
            return b""
        return self._chunk({"choices": [choice], **beside})

    def end(self, answer: Answer) -> bytes:
        done = usage.completed(answer)
        last: list[dict[str, Any]] = [
            {
                "choices": [
                    {
                        "index": end.index,
                        "text": "",
                        "logprobs": None,
                        "finish_reason": usage.finish_reason(end.stop),
                    }
                ]
            }
            for end in done.choices
        ]
        if self._include_usage:
            last.append({"choices": []})
        last[-1]["usage"] = usage.openai_usage(done.usage)
        last[-1]["timings"] = usage.timings(done.timings)
        return b"".join(map(self._chunk, last)) + sse.DONE

    def _chunk(self, members: dict[str, Any]) -> bytes:
        return self._head + b"," + sse.to_json(members)[1:] + b"\n\n"

    def error(self, error: WireError) -> bytes:
        return sse.event(errors.body(Dialect.OPENAI, errors.from_wire(error)))

    def comment(self, text: str) -> bytes:
        return sse.comment(text)


class CompletionBody:
    """The whole answer in one JSON body."""

    media_type = "application/json; charset=utf-8"
    streams = False
    comments = False

    def __init__(self, id: str, model: str, created: int, *, n: int) -> None:
        self._id = id
        self._model = model
        self._created = created
        self._n = n
        self._collector = Collector(n)

    def begin(self) -> bytes:
        self._collector = Collector(self._n)
        return b""

    def delta(self, delta: Delta) -> bytes:
        self._collector.add(delta)
        return b""

    def end(self, answer: Answer) -> bytes:
        done = usage.completed(answer)
        return sse.to_json(
            {
                "id": self._id,
                "object": "text_completion",
                "created": self._created,
                "model": self._model,
                "system_fingerprint": FINGERPRINT,
                "choices": [self._choice(end) for end in done.choices],
                "usage": usage.openai_usage(done.usage),
                "timings": usage.timings(done.timings),
            }
        )

    def _choice(self, end: ChoiceEnd) -> dict[str, Any]:
        choice = self._collector.choices[end.index]
        return {
            "text": choice.text,
            "index": end.index,
            "logprobs": logprobs(choice.logprobs, 0) if choice.logprobs else None,
            "finish_reason": usage.finish_reason(end.stop),
        }

    def error(self, error: WireError) -> bytes:
        return errors.body(Dialect.OPENAI, errors.from_wire(error))

    def comment(self, text: str) -> bytes:
        return b""


def logprobs(entries: list[TokenLogprob] | tuple[TokenLogprob, ...], offset: int) -> dict[str, Any]:
    """OpenAI's parallel arrays, and llama-server's `content` beside them."""
    return {
        **usage.legacy_logprobs(entries, offset),
        "content": usage.logprob_entries(entries, as_probabilities=False),
    }

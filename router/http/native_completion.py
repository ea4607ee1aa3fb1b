"""llama-server's own `/completion`, `/completions` and `/infill`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from protocol.chat import InfillPrompt
from protocol.codec import Answer
from protocol.errors import WireError
from protocol.generate import ChoiceEnd, Completed, Delta, Generate
from protocol.sampling import Grammar, JsonSchema
from router.config.model import Model
from router.http import errors, sse, usage
from router.http.call import Call, Response
from router.http.chat_request import MAX_TOP_LOGPROBS
from router.http.collector import Collector
from router.http.decoding import decode
from router.http.errors import Dialect, invalid
from router.http.fields import GenerationFields
from router.http.generation import generate
from router.http.prompts import PromptField, prompts
from router.http.routing import Route
from router.http.services import Services
from router.transport.encoder import Encoder

Probabilities = Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)]


class NativeRequest(GenerationFields, kw_only=True):
    prompt: PromptField | None = None
    n_probs: Probabilities | None = None
    logprobs: Probabilities | None = None
    response_fields: list[str] | None = None


class InfillExtra(Struct):
    text: str
    filename: str | None = None


class InfillRequest(NativeRequest, kw_only=True):
    """Here `prompt` is text that stands between prefix and the gap."""

    input_prefix: str | None = None
    input_suffix: str | None = None
    input_extra: list[InfillExtra] | None = None


_request: msgspec.json.Decoder[NativeRequest] = msgspec.json.Decoder(NativeRequest)
_infill: msgspec.json.Decoder[InfillRequest] = msgspec.json.Decoder(InfillRequest)


class NativeCompletions:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/completion", self.complete),
            Route("POST", "/completions", self.complete),
            Route("POST", "/infill", self.infill),
        ]

    async def complete(self, call: Call) -> Response:
        request = decode(_request, await call.body())
        model = self._services.model(call, request.model)
        several = isinstance(request.prompt, list) and not any(isinstance(item, int) for item in request.prompt)
        works = [generate(request, prompt, model, n_probs=_n_probs(request)) for prompt in prompts(request.prompt)]
        return self._answer(call, model, request, works, several=several)

    async def infill(self, call: Call) -> Response:
        request = decode(_infill, await call.body())
        model = self._services.model(call, request.model)
        if request.input_prefix is None:
            raise invalid("'input_prefix' is required", "input_prefix")
        if request.input_suffix is None:
            raise invalid("'input_suffix' is required", "input_suffix")
        if request.prompt is not None and not isinstance(request.prompt, str):
            raise invalid("prompt: expected a string", "prompt")
        prompt = InfillPrompt(
            prefix=request.input_prefix,
            suffix=request.input_suffix,
            prompt=request.prompt or "",
            extra=tuple((extra.filename or "", extra.text) for extra in request.input_extra or ()),
        )
        work = generate(request, prompt, model, n_probs=_n_probs(request))
        return self._answer(call, model, request, [work], several=False)

    def _answer(
        self, call: Call, model: Model, request: NativeRequest, works: list[Generate], *, several: bool
    ) -> Response:
        works = [msgspec.structs.replace(work, return_prompt=True) for work in works]
        fields = tuple(request.response_fields or ())
        encoder: Encoder
        if request.stream:
            encoder = NativeChunks(model.id, works, fields)
        else:
            encoder = NativeBody(model.id, works, fields, several=several or works[0].n > 1)
        return self._services.answer_all(call, sse.random_id("cmpl-"), model, works, encoder)


def _n_probs(request: NativeRequest) -> int:
    if request.n_probs is not None:
        return request.n_probs
    return request.logprobs or 0


class _Native:
    """What both forms share: the choices gathered so far, and the object that ends each of them."""

    def __init__(self, model: str, works: list[Generate], fields: tuple[str, ...]) -> None:
        self._model = model
        self._works = [work for work in works for _ in range(work.n)]
        self._fields = fields
        self._collector = Collector(len(self._works))

    def begin(self) -> bytes:
        self._collector = Collector(len(self._works))
        return b""

    def final(self, done: Completed, end: ChoiceEnd, *, whole: bool) -> dict[str, Any]:
        """The last object of a choice; its text only where it has not been sent before."""
        choice = self._collector.choices[end.index]
        work = self._works[end.index]
        text = choice.text
        value: dict[str, Any] = {
            "index": end.index,
            "content": text if whole else "",
            "tokens": choice.tokens if whole else [],
            "id_slot": done.slot,
            "stop": True,
            "model": self._model,
            "tokens_predicted": end.n_tokens or choice.n_tokens,
            "tokens_evaluated": done.usage.prompt_tokens,
            "generation_settings": generation_settings(work, done.seed),
            "prompt": done.prompt,
            "has_new_line": "\n" in text,
            "truncated": done.truncated,
            "stop_type": "eos" if end.stop == "tool_calls" else end.stop,
            "stopping_word": end.word,
            "tokens_cached": max(done.usage.prompt_tokens + (end.n_tokens or choice.n_tokens) - 1, 0),
            "timings": usage.timings(done.timings),
        }
        if whole and choice.logprobs:
            value["completion_probabilities"] = usage.logprob_entries(
                choice.logprobs, as_probabilities=work.sampling.post_sampling_probs
            )
        return selected(value, self._fields) if self._fields else value


class NativeChunks(_Native):
    """The streamed form; it ends without `[DONE]`."""

    media_type = "text/event-stream"
    streams = True
    comments = True

    def delta(self, delta: Delta) -> bytes:
        self._collector.add(delta)
        choice = self._collector.choices[delta.index]
        extra = delta.extra
        value: dict[str, Any] = {
            "index": delta.index,
            "content": delta.text,
            "tokens": [] if extra is None else extra.tokens,
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": choice.n_tokens,
            "tokens_evaluated": 0,
        }
        if extra is not None:
            if extra.timings is not None:
                value["timings"] = usage.timings(extra.timings)
                value["tokens_evaluated"] = extra.timings.prompt_n + extra.timings.cache_n
            if extra.progress is not None:
                value["prompt_progress"] = usage.progress(extra.progress)
            if extra.logprobs:
                value["completion_probabilities"] = usage.logprob_entries(
                    extra.logprobs, as_probabilities=self._works[delta.index].sampling.post_sampling_probs
                )
        elif not delta.text:
            return b""
        return sse.event(sse.to_json(value))

    def end(self, answer: Answer) -> bytes:
        done = usage.completed(answer)
        return b"".join(sse.event(sse.to_json(self.final(done, end, whole=False))) for end in done.choices)

    def error(self, error: WireError) -> bytes:
        return sse.event(errors.body(Dialect.OPENAI, errors.from_wire(error)))

    def comment(self, text: str) -> bytes:
        return sse.comment(text)


class NativeBody(_Native):
    """One object, or an array where several prompts or choices were asked for."""

    media_type = "application/json; charset=utf-8"
    streams = False
    comments = False

    def __init__(self, model: str, works: list[Generate], fields: tuple[str, ...], *, several: bool) -> None:
        super().__init__(model, works, fields)
        self._several = several

    def delta(self, delta: Delta) -> bytes:
        self._collector.add(delta)
        return b""

    def end(self, answer: Answer) -> bytes:
        done = usage.completed(answer)
        values = [self.final(done, end, whole=True) for end in done.choices]
        return sse.to_json(values if self._several else values[0])

    def error(self, error: WireError) -> bytes:
        return errors.body(Dialect.OPENAI, errors.from_wire(error))

    def comment(self, text: str) -> bytes:
        return b""


def selected(value: dict[str, Any], fields: tuple[str, ...]) -> dict[str, Any]:
    """The members that `response_fields` asks for; `a/b` brings out what is nested, by its last name."""
    picked: dict[str, Any] = {}
    for path in fields:
        found: Any = value
        names = path.split("/")
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        if found is not None:
            picked[names[-1]] = found
    return picked


def generation_settings(work: Generate, seed: int) -> dict[str, Any]:
    """The parameters in effect, with llama-server's names."""
    constraint = work.sampling.constraint
    return {
        **{name: getattr(work.sampling, name) for name in work.sampling.__struct_fields__ if name != "constraint"},
        "logit_bias": [{"token": token, "bias": usage.finite(bias)} for token, bias in work.sampling.logit_bias],
        "seed": seed,
        "n_predict": work.max_tokens,
        "max_tokens": work.max_tokens,
        "n_keep": work.n_keep,
        "n_discard": work.n_discard,
        "stop": work.stop,
        "stream": work.stream,
        "grammar": constraint.gbnf if isinstance(constraint, Grammar) else "",
        "json_schema": msgspec.Raw(constraint.schema_json) if isinstance(constraint, JsonSchema) else None,
        "timings_per_token": work.timings_per_token,
        "lora": [] if work.adapters is None else [{"id": lora.id, "scale": lora.scale} for lora in work.adapters],
    }

"""Deltas become OpenAI chat chunks, or one chat completion."""

from __future__ import annotations

from typing import Any

from protocol.codec import Answer
from protocol.errors import WireError
from protocol.generate import ChoiceEnd, Completed, Delta, DeltaExtra, ToolCallDelta
from router.http import errors, sse, usage
from router.http.collector import Choice, Collector
from router.http.errors import Dialect
from router.http.version import FINGERPRINT

_TAIL = b'},"finish_reason":null}]}\n\n'


class ChatChunks:
    """The streamed form. Everything but the text of a chunk is made once per request."""

    media_type = "text/event-stream"
    streams = True
    comments = True

    def __init__(
        self, id: str, model: str, created: int, *, n: int, include_usage: bool, as_probabilities: bool = False
    ) -> None:
        self._n = n
        self._include_usage = include_usage
        self._as_probabilities = as_probabilities
        head = sse.to_json(
            {
                "id": id,
                "object": "chat.completion.chunk",
                "created": created,
                "model": model,
                "system_fingerprint": FINGERPRINT,
            }
        )
        self._head = b"data: " + head[:-1]
        self._open = [self._head + b',"choices":[{"index":%d,"delta":{' % index for index in range(n)]
        self._content = [start + b'"content":' for start in self._open]
        self._calls: list[Choice] = []

    def begin(self) -> bytes:
        self._calls = [Choice() for _ in range(self._n)]
        return b"".join(start + b'"role":"assistant","content":null' + _TAIL for start in self._open)

    def delta(self, delta: Delta) -> bytes:
        if delta.extra is None:
            return self._content[delta.index] + sse.to_json(delta.text) + _TAIL if delta.text else b""
        return self._rich(delta, delta.extra)

    def _rich(self, delta: Delta, extra: DeltaExtra) -> bytes:
        fields: dict[str, Any] = {}
        if extra.reasoning:
            fields["reasoning_content"] = extra.reasoning
        if delta.text:
            fields["content"] = delta.text
        if extra.tool_calls:
            fields["tool_calls"] = [self._call(delta.index, fragment) for fragment in extra.tool_calls]
        choice: dict[str, Any] = {"index": delta.index, "delta": fields, "finish_reason": None}
        if extra.logprobs:
            choice["logprobs"] = {
                "content": usage.logprob_entries(extra.logprobs, as_probabilities=self._as_probabilities)
            }
        beside: dict[str, Any] = {}
        if extra.progress is not None:
            beside["prompt_progress"] = usage.progress(extra.progress)
        if extra.timings is not None:
            beside["timings"] = usage.timings(extra.timings)
        if not fields and not beside and not extra.logprobs:
            return b""
        return self._chunk({"choices": [choice], **beside})

    def _call(self, index: int, fragment: ToolCallDelta) -> dict[str, Any]:
        call, first = self._calls[index].add_call(fragment)
        if not first:
            return {"index": fragment.index, "function": {"arguments": fragment.arguments}}
        return {
            "index": fragment.index,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": fragment.arguments},
        }

    def end(self, answer: Answer) -> bytes:
        done = usage.completed(answer)
        last: list[dict[str, Any]] = [
            {"choices": [{"index": end.index, "delta": {}, "finish_reason": usage.finish_reason(end.stop)}]}
            for end in done.choices
        ]
        if self._include_usage:
            last.append({"choices": [], "usage": usage.openai_usage(done.usage)})
        last[-1]["timings"] = usage.timings(done.timings)
        return b"".join(map(self._chunk, last)) + sse.DONE

    def _chunk(self, members: dict[str, Any]) -> bytes:
        return self._head + b"," + sse.to_json(members)[1:] + b"\n\n"

    def error(self, error: WireError) -> bytes:
        return sse.event(errors.body(Dialect.OPENAI, errors.from_wire(error)))

    def comment(self, text: str) -> bytes:
        return sse.comment(text)


class ChatBody:
    """The whole answer in one JSON body."""

    media_type = "application/json; charset=utf-8"
    streams = False
    comments = False

    def __init__(self, id: str, model: str, created: int, *, n: int, as_probabilities: bool = False) -> None:
        self._id = id
        self._model = model
        self._created = created
        self._as_probabilities = as_probabilities
        self._n = n
        self._collector = Collector(n)

    def begin(self) -> bytes:
        self._collector = Collector(self._n)
        return b""

    def delta(self, delta: Delta) -> bytes:
        self._collector.add(delta)
        return b""

    def end(self, answer: Answer) -> bytes:
        done: Completed = usage.completed(answer)
        return sse.to_json(
            {
                "id": self._id,
                "object": "chat.completion",
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
        message: dict[str, Any] = {"role": "assistant", "content": choice.text}
        if choice.reasoning_parts:
            message["reasoning_content"] = choice.reasoning
        if choice.calls:
            message["content"] = choice.text or None
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments_json},
                }
                for _, call in sorted(choice.calls.items())
            ]
        value: dict[str, Any] = {
            "index": end.index,
            "message": message,
            "logprobs": None,
            "finish_reason": usage.finish_reason(end.stop),
        }
        if choice.logprobs:
            value["logprobs"] = {
                "content": usage.logprob_entries(choice.logprobs, as_probabilities=self._as_probabilities)
            }
        return value

    def error(self, error: WireError) -> bytes:
        return errors.body(Dialect.OPENAI, errors.from_wire(error))

    def comment(self, text: str) -> bytes:
        return b""

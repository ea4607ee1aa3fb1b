"""Deltas become Ollama's lines of JSON, or one object."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import msgspec

from protocol.codec import Answer
from protocol.errors import WireError
from protocol.generate import Completed, Delta, DeltaExtra
from router.http import errors, sse, usage
from router.http.collector import Choice, CollectedCall
from router.http.errors import Dialect

MS = 1_000_000
"""Nanoseconds, in which Ollama tells durations."""


def timestamp() -> str:
    """Now, as Ollama writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def duration(since: float) -> int:
    """Nanoseconds since a moment of the monotonic clock."""
    return int((time.monotonic() - since) * 1e9)


class _Answer:
    """What lines and bodies share. `chat` tells `/api/chat`, with its messages, from `/api/generate`."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self._model = model
        self._chat = chat
        self._start = time.monotonic()
        self._choice = Choice()

    def value(self, text: str, reasoning: str = "", calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        value: dict[str, Any] = {"model": self._model, "created_at": timestamp()}
        if not self._chat:
            value["response"] = text
            if reasoning:
                value["thinking"] = reasoning
            return value
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if reasoning:
            message["thinking"] = reasoning
        if calls:
            message["tool_calls"] = calls
        value["message"] = message
        return value

    def calls(self) -> list[dict[str, Any]]:
        return [
            {"id": call.id, "function": {"name": call.name, "arguments": _arguments(call)}}
            for _, call in sorted(self._choice.calls.items())
        ]

    def ending(self, done: Completed) -> dict[str, Any]:
        times = done.timings
        return {
            "done": True,
            "done_reason": "length" if done.choices[0].stop == "limit" else "stop",
            "total_duration": duration(self._start),
            "load_duration": 0,
            "prompt_eval_count": done.usage.prompt_tokens,
            "prompt_eval_duration": int(times.prompt_ms * MS),
            "eval_count": done.usage.completion_tokens,
            "eval_duration": int(times.predicted_ms * MS),
        }


def _arguments(call: CollectedCall) -> object:
    try:
        value: object = msgspec.json.decode(call.arguments_json)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


class Lines(_Answer):
    """The streamed form: newline-delimited JSON. Tool calls go out whole."""

    media_type = "application/x-ndjson"
    streams = True
    comments = False

    def __init__(self, model: str, *, chat: bool) -> None:
        super().__init__(model, chat=chat)
        self._head = b'{"model":' + sse.to_json(model) + b',"created_at":"'
        self._middle = b'","message":{"role":"assistant","content":' if chat else b'","response":'
        self._tail = b'},"done":false}\n' if chat else b',"done":false}\n'

    def begin(self) -> bytes:
        self._choice = Choice()
        return b""

    def delta(self, delta: Delta) -> bytes:
        if delta.extra is not None:
            return self._rich(delta, delta.extra)
        if not delta.text:
            return b""
        return self._head + timestamp().encode() + self._middle + sse.to_json(delta.text) + self._tail

    def _rich(self, delta: Delta, extra: DeltaExtra) -> bytes:
        for fragment in extra.tool_calls:
            self._choice.add_call(fragment)
        if not delta.text and not extra.reasoning:
            return b""
        return _line({**self.value(delta.text, extra.reasoning), "done": False})

    def end(self, answer: Answer) -> bytes:
        done = usage.completed(answer)
        calls = self.calls()
        before = _line({**self.value("", calls=calls), "done": False}) if calls else b""
        return before + _line({**self.value(""), **self.ending(done)})

    def error(self, error: WireError) -> bytes:
        return errors.body(Dialect.OLLAMA, errors.from_wire(error)) + b"\n"

    def comment(self, text: str) -> bytes:
        return b""


class Body(_Answer):
    """The whole answer in one JSON body."""

    media_type = "application/json; charset=utf-8"
    streams = False
    comments = False

    def begin(self) -> bytes:
        self._choice = Choice()
        return b""

    def delta(self, delta: Delta) -> bytes:
        self._choice.add(delta)
        return b""

    def end(self, answer: Answer) -> bytes:
        done = usage.completed(answer)
        choice = self._choice
        return sse.to_json({**self.value(choice.text, choice.reasoning, self.calls()), **self.ending(done)})

    def error(self, error: WireError) -> bytes:
        return errors.body(Dialect.OLLAMA, errors.from_wire(error))

    def comment(self, text: str) -> bytes:
        return b""


def _line(value: dict[str, Any]) -> bytes:
    return sse.to_json(value) + b"\n"

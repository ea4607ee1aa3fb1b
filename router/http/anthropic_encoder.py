"""Deltas become Anthropic's stream events, or one message."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from protocol.codec import Answer
from protocol.errors import WireError
from protocol.generate import ChoiceEnd, Delta, DeltaExtra, Usage
from router.http import errors, sse, usage
from router.http.collector import Choice, CollectedCall
from router.http.errors import Dialect

_BLOCK_DELTA = b"event: content_block_delta\ndata: "


class MessageEvents:
    """The streamed form: each part of the answer is a block that is opened, filled and closed before the next."""

    media_type = "text/event-stream"
    streams = True
    comments = True

    def __init__(self, id: str, model: str, stop_sequences: Collection[str]) -> None:
        self._id = id
        self._model = model
        self._stop_sequences = stop_sequences
        self._reset()

    def _reset(self) -> None:
        self._open = ""
        self._index = -1
        self._call = -1
        self._choice = Choice()
        self._text_head = b""

    def begin(self) -> bytes:
        self._reset()
        message: dict[str, Any] = {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self._model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        return _event({"type": "message_start", "message": message})

    def delta(self, delta: Delta) -> bytes:
        if delta.extra is None:
            return self._text(delta.text) if delta.text else b""
        return self._rich(delta.text, delta.extra)

    def _text(self, text: str) -> bytes:
        opening = b"" if self._open == "text" else self._start("text", {"type": "text", "text": ""})
        return opening + self._text_head + sse.to_json(text) + b"}}\n\n"

    def _rich(self, text: str, extra: DeltaExtra) -> bytes:
        out: list[bytes] = []
        if extra.reasoning:
            if self._open != "thinking":
                out.append(self._start("thinking", {"type": "thinking", "thinking": "", "signature": ""}))
            out.append(self._fill({"type": "thinking_delta", "thinking": extra.reasoning}))
        if text:
            out.append(self._text(text))
        for fragment in extra.tool_calls:
            call, first = self._choice.add_call(fragment)
            if first or self._call != fragment.index:
                out.append(self._start("tool_use", {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}))
                self._call = fragment.index
            if fragment.arguments:
                out.append(self._fill({"type": "input_json_delta", "partial_json": fragment.arguments}))
        return b"".join(out)

    def _start(self, kind: str, block: dict[str, Any]) -> bytes:
        closing = self._stop()
        self._open = kind
        self._index += 1
        self._text_head = (
            _BLOCK_DELTA
            + b'{"type":"content_block_delta","index":%d,"delta":{"type":"text_delta","text":' % self._index
        )
        return closing + _event({"type": "content_block_start", "index": self._index, "content_block": block})

    def _fill(self, delta: dict[str, str]) -> bytes:
        return _event({"type": "content_block_delta", "index": self._index, "delta": delta})

    def _stop(self) -> bytes:
        if not self._open:
            return b""
        # Clients expect a signature before a thinking block ends; there is none to give.
        signing = self._fill({"type": "signature_delta", "signature": ""}) if self._open == "thinking" else b""
        self._open = ""
        return signing + _event({"type": "content_block_stop", "index": self._index})

    def end(self, answer: Answer) -> bytes:
        done = usage.completed(answer)
        reason, sequence = stop_reason(done.choices[0], self._stop_sequences)
        return (
            self._stop()
            + _event(
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": reason, "stop_sequence": sequence},
                    "usage": message_usage(done.usage),
                }
            )
            + _event({"type": "message_stop"})
        )

    def error(self, error: WireError) -> bytes:
        return sse.named_event("error", errors.body(Dialect.ANTHROPIC, errors.from_wire(error)))

    def comment(self, text: str) -> bytes:
        return sse.comment(text)


class MessageBody:
    """The whole message in one JSON body."""

    media_type = "application/json; charset=utf-8"
    streams = False
    comments = False

    def __init__(self, id: str, model: str, stop_sequences: Collection[str]) -> None:
        self._id = id
        self._model = model
        self._stop_sequences = stop_sequences
        self._choice = Choice()

    def begin(self) -> bytes:
        self._choice = Choice()
        return b""

    def delta(self, delta: Delta) -> bytes:
        self._choice.add(delta)
        return b""

    def end(self, answer: Answer) -> bytes:
        done = usage.completed(answer)
        reason, sequence = stop_reason(done.choices[0], self._stop_sequences)
        return sse.to_json(
            {
                "id": self._id,
                "type": "message",
                "role": "assistant",
                "content": self._blocks(),
                "model": self._model,
                "stop_reason": reason,
                "stop_sequence": sequence,
                "usage": message_usage(done.usage),
            }
        )

    def _blocks(self) -> list[dict[str, Any]]:
        blocks: list[dict[str, Any]] = []
        if self._choice.reasoning_parts:
            blocks.append({"type": "thinking", "thinking": self._choice.reasoning, "signature": ""})
        if self._choice.text_parts:
            blocks.append({"type": "text", "text": self._choice.text})
        for _, call in sorted(self._choice.calls.items()):
            blocks.append({"type": "tool_use", "id": call.id, "name": call.name, "input": _arguments(call)})
        return blocks

    def error(self, error: WireError) -> bytes:
        return errors.body(Dialect.ANTHROPIC, errors.from_wire(error))

    def comment(self, text: str) -> bytes:
        return b""


def _event(data: dict[str, Any]) -> bytes:
    return sse.named_event(data["type"], sse.to_json(data))


def _arguments(call: CollectedCall) -> object:
    """The arguments as an object; a call that was cut off by the token limit has none that can be read."""
    try:
        value: object = msgspec.json.decode(call.arguments_json)
    except msgspec.DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def stop_reason(end: ChoiceEnd, stop_sequences: Collection[str]) -> tuple[str, str | None]:
    """Anthropic's reason, and the client's stop sequence if it was one that ended the text."""
    if end.stop == "word" and end.word in stop_sequences:
        return "stop_sequence", end.word
    return {"limit": "max_tokens", "tool_calls": "tool_use"}.get(end.stop, "end_turn"), None


def message_usage(counts: Usage) -> dict[str, int]:
    """Anthropic counts what came from the cache apart from the input."""
    return {
        "input_tokens": counts.prompt_tokens - counts.cached_tokens,
        "output_tokens": counts.completion_tokens,
        "cache_read_input_tokens": counts.cached_tokens,
        "cache_creation_input_tokens": 0,
    }

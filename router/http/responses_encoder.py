"""Deltas become the events of the Responses API, or one response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from protocol.chat import ChatMessage, ToolCall
from protocol.codec import Answer
from protocol.errors import WireError
from protocol.generate import Completed, Delta, DeltaExtra, TokenLogprob
from router.http import errors, sse, usage
from router.http.collector import Choice, CollectedCall
from router.http.errors import Dialect

Said = Callable[[ChatMessage], None]
"""Told what the assistant said, once its turn has ended."""


class _Response:
    """What both forms share: the response object around the output, and what is told at the end."""

    def __init__(self, base: dict[str, Any], said: Said) -> None:
        """`base` is the response object with the request's settings in it."""
        self._base = base
        self._said = said
        self._choice = Choice()

    def object(self, status: str, output: list[dict[str, Any]], done: Completed | None = None) -> dict[str, Any]:
        value = {**self._base, "status": status, "output": output}
        if done is not None:
            value["usage"] = usage.responses_usage(done.usage)
            value["timings"] = usage.timings(done.timings)
        if status == "incomplete":
            value["incomplete_details"] = {"reason": "max_output_tokens"}
        return value

    def tell(self) -> None:
        choice = self._choice
        self._said(
            ChatMessage(
                "assistant",
                choice.text if choice.text_parts or not choice.calls else None,
                reasoning_content=choice.reasoning,
                tool_calls=tuple(
                    ToolCall(call.name, call.arguments_json, call.id) for _, call in sorted(choice.calls.items())
                ),
            )
        )


def final_status(done: Completed) -> str:
    return "incomplete" if done.choices[0].stop == "limit" else "completed"


def text_part(text: str, logprobs: list[TokenLogprob]) -> dict[str, Any]:
    return {
        "type": "output_text",
        "text": text,
        "annotations": [],
        "logprobs": usage.logprob_entries(logprobs, as_probabilities=False),
    }


def reasoning_item(id: str, text: str | None, status: str) -> dict[str, Any]:
    content = [] if text is None else [{"type": "reasoning_text", "text": text}]
    return {"id": id, "type": "reasoning", "summary": [], "content": content, "status": status}


def message_item(id: str, parts: list[dict[str, Any]], status: str) -> dict[str, Any]:
    return {"id": id, "type": "message", "role": "assistant", "content": parts, "status": status}


def call_item(id: str, call: CollectedCall, arguments: str, status: str) -> dict[str, Any]:
    return {
        "id": id,
        "type": "function_call",
        "call_id": call.id,
        "name": call.name,
        "arguments": arguments,
        "status": status,
    }


class ResponseBody(_Response):
    """The whole response in one JSON body."""

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
        output: list[dict[str, Any]] = []
        if choice.reasoning_parts:
            output.append(reasoning_item(sse.random_id("rs_"), choice.reasoning, "completed"))
        if choice.text_parts or not choice.calls:
            part = text_part(choice.text, choice.logprobs)
            output.append(message_item(sse.random_id("msg_"), [part], final_status(done)))
        for _, call in sorted(choice.calls.items()):
            output.append(call_item(sse.random_id("fc_"), call, call.arguments_json, "completed"))
        self.tell()
        return sse.to_json(self.object(final_status(done), output, done))

    def error(self, error: WireError) -> bytes:
        return errors.body(Dialect.OPENAI, errors.from_wire(error))

    def comment(self, text: str) -> bytes:
        return b""


class ResponseEvents(_Response):
    """The streamed form: every item is added, filled and done before the next one begins."""

    media_type = "text/event-stream"
    streams = True
    comments = True

    def __init__(self, base: dict[str, Any], said: Said) -> None:
        super().__init__(base, said)
        self._reset()

    def _reset(self) -> None:
        self._choice = Choice()
        self._sequence = 0
        self._output: list[dict[str, Any]] = []
        self._kind = ""
        self._item = ""
        self._parts: list[str] = []
        self._logprobs: list[TokenLogprob] = []
        self._call: CollectedCall | None = None
        self._call_index = -1

    def begin(self) -> bytes:
        self._reset()
        response = self.object("in_progress", [])
        return self._event("response.created", response=response) + self._event(
            "response.in_progress", response=response
        )

    def delta(self, delta: Delta) -> bytes:
        self._choice.add(delta)
        if delta.extra is None:
            return self._text(delta.text, ()) if delta.text else b""
        return self._rich(delta, delta.extra)

    def _rich(self, delta: Delta, extra: DeltaExtra) -> bytes:
        out: list[bytes] = []
        if extra.reasoning:
            out.append(self._open_reasoning() if self._kind != "reasoning" else b"")
            self._parts.append(extra.reasoning)
            out.append(self._filling("response.reasoning_text.delta", delta=extra.reasoning))
        if delta.text or extra.logprobs:
            out.append(self._text(delta.text, extra.logprobs))
        for fragment in extra.tool_calls:
            if self._kind != "call" or self._call_index != fragment.index:
                out.append(self._open_call(fragment.index))
            if fragment.arguments:
                self._parts.append(fragment.arguments)
                out.append(
                    self._event(
                        "response.function_call_arguments.delta",
                        item_id=self._item,
                        output_index=len(self._output),
                        delta=fragment.arguments,
                    )
                )
        return b"".join(out)

    def _text(self, text: str, logprobs: tuple[TokenLogprob, ...]) -> bytes:
        opening = b"" if self._kind == "message" else self._open_message()
        self._parts.append(text)
        self._logprobs.extend(logprobs)
        entries = usage.logprob_entries(logprobs, as_probabilities=False)
        return opening + self._filling("response.output_text.delta", delta=text, logprobs=entries)

    def _open_message(self) -> bytes:
        closing = self._close()
        self._kind, self._item = "message", sse.random_id("msg_")
        return (
            closing
            + self._added(message_item(self._item, [], "in_progress"))
            + self._filling("response.content_part.added", part=text_part("", []))
        )

    def _open_reasoning(self) -> bytes:
        closing = self._close()
        self._kind, self._item = "reasoning", sse.random_id("rs_")
        part = {"type": "reasoning_text", "text": ""}
        return (
            closing
            + self._added(reasoning_item(self._item, None, "in_progress"))
            + self._filling("response.content_part.added", part=part)
        )

    def _open_call(self, index: int) -> bytes:
        closing = self._close()
        self._kind, self._item = "call", sse.random_id("fc_")
        self._call, self._call_index = self._choice.calls[index], index
        return closing + self._added(call_item(self._item, self._call, "", "in_progress"))

    def _close(self, status: str = "completed") -> bytes:
        """End the item that is open, and put it into the output."""
        whole = "".join(self._parts)
        out: list[bytes] = []
        if self._kind == "message":
            part = text_part(whole, self._logprobs)
            out.append(self._filling("response.output_text.done", text=whole, logprobs=part["logprobs"]))
            out.append(self._filling("response.content_part.done", part=part))
            out.append(self._done(message_item(self._item, [part], status)))
        elif self._kind == "reasoning":
            out.append(self._filling("response.reasoning_text.done", text=whole))
            out.append(self._filling("response.content_part.done", part={"type": "reasoning_text", "text": whole}))
            out.append(self._done(reasoning_item(self._item, whole, "completed")))
        elif self._kind == "call" and self._call is not None:
            arguments = whole or "{}"
            out.append(
                self._event(
                    "response.function_call_arguments.done",
                    item_id=self._item,
                    output_index=len(self._output),
                    name=self._call.name,
                    arguments=arguments,
                )
            )
            out.append(self._done(call_item(self._item, self._call, arguments, "completed")))
        self._kind, self._parts, self._logprobs = "", [], []
        return b"".join(out)

    def end(self, answer: Answer) -> bytes:
        done = usage.completed(answer)
        status = final_status(done)
        opening = b"" if self._kind or self._output else self._open_message()
        closing = self._close(status)
        self.tell()
        return opening + closing + self._event(f"response.{status}", response=self.object(status, self._output, done))

    def error(self, error: WireError) -> bytes:
        shown = errors.from_wire(error)
        body: dict[str, Any] = msgspec.json.decode(errors.body(Dialect.OPENAI, shown))
        return self._event("error", code=shown.type, message=shown.message, param=shown.param or None, **body)

    def comment(self, text: str) -> bytes:
        return sse.comment(text)

    def _added(self, item: dict[str, Any]) -> bytes:
        return self._event("response.output_item.added", output_index=len(self._output), item=item)

    def _filling(self, name: str, /, **members: object) -> bytes:
        return self._event(name, item_id=self._item, output_index=len(self._output), content_index=0, **members)

    def _done(self, item: dict[str, Any]) -> bytes:
        data = self._event("response.output_item.done", output_index=len(self._output), item=item)
        self._output.append(item)
        return data

    def _event(self, name: str, /, **members: object) -> bytes:
        number = self._sequence
        self._sequence += 1
        return sse.named_event(name, sse.to_json({"type": name, "sequence_number": number, **members}))

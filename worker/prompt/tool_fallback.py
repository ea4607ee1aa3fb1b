"""Tools for models whose template knows none: described in words, called in JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from protocol.chat import ChatMessage, TextPart, Tool
from worker.prompt.messages import call_arguments, tool_context

FORMAT = "generic"
"""The output format that the description asks for."""

_INTRODUCTION = "You can call these functions, each described by a JSON object:"
_INSTRUCTION = (
    "To call one, answer with nothing but a JSON object of this form:\n"
    '{"name": "the function\'s name", "arguments": {"its": "arguments"}}\n'
    "If none of them helps, answer in plain words."
)


def with_described_tools(messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> tuple[ChatMessage, ...]:
    """The conversation with the tools in its system message, and with calls and results as plain text.

    A user's message takes up the results next to it: many templates insist that user and assistant alternate.
    """
    names = {call.id: call.name for message in messages for call in message.tool_calls if call.id}
    plain: list[ChatMessage] = []
    after_result = False
    for position, message in enumerate(messages):
        worded = _in_words(message, names, f"messages[{position}]")
        if plain and worded.role == plain[-1].role == "user" and (after_result or message.role == "tool"):
            worded = msgspec.structs.replace(worded, content=_joined(plain.pop().content, worded.content))
        plain.append(worded)
        after_result = message.role == "tool"
    description = _describe(tools)
    if plain and plain[0].role in {"system", "developer"}:
        plain[0] = msgspec.structs.replace(plain[0], content=_joined(plain[0].content, description))
    else:
        plain.insert(0, ChatMessage("system", description))
    return tuple(plain)


def _describe(tools: Sequence[Tool]) -> str:
    lines = [json.dumps(entry["function"], ensure_ascii=False) for entry in tool_context(tools)]
    return "\n".join([_INTRODUCTION, *lines, "", _INSTRUCTION])


def _in_words(message: ChatMessage, names: dict[str, str], param: str) -> ChatMessage:
    if message.role == "tool":
        name = message.name or names.get(message.tool_call_id, "")
        title = f"Result of {name}:\n" if name else "Result:\n"
        return ChatMessage("user", _joined(title, message.content, separator=""))
    if message.tool_calls:
        calls = "\n".join(
            json.dumps(
                {
                    "name": call.name,
                    "arguments": call_arguments(call, f"{param}.tool_calls[{index}].function.arguments"),
                },
                ensure_ascii=False,
            )
            for index, call in enumerate(message.tool_calls)
        )
        content = _joined(message.content, calls) if message.content else calls
        return msgspec.structs.replace(message, content=content, tool_calls=())
    return message


def _joined(first: Any, second: Any, separator: str = "\n\n") -> Any:
    """Two contents as one: texts are joined, parts follow one another."""
    if isinstance(first, str) and isinstance(second, str):
        return first + separator + second
    parts = [TextPart(part) if isinstance(part, str) else part for part in (first, second) if part is not None]
    return tuple(entry for part in parts for entry in (part if isinstance(part, tuple) else (part,)))

"""Results of tools inside of the message that called them, as the first templates of Gemma 4 read them."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]

_NEWER = "{#- OpenAI Chat Completions:"
"""A comment in the templates that read messages of tools by themselves."""


def wants_gathered_responses(output_format: str, source: str) -> bool:
    """Whether a template knows results of tools only as a part of the call's message."""
    return output_format == "gemma4" and _NEWER not in source


def gather_tool_responses(messages: list[Json]) -> list[Json]:
    """Each message with calls, the results behind it and the answer behind those, as one message."""
    gathered: list[Json] = []
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if message["role"] != "assistant" or not message.get("tool_calls"):
            gathered.append(message)
            continue
        turn = dict(message)
        responses: list[Json] = []
        while position < len(messages) and messages[position]["role"] == "tool":
            responses.append(_response(messages[position], turn["tool_calls"], len(responses)))
            position += 1
        if responses:
            turn["tool_responses"] = responses
        if position < len(messages) and _is_answer(messages[position]):
            turn["content"] = messages[position]["content"]
            position += 1
        gathered.append(turn)
    return gathered


def _response(message: Json, calls: list[Json], index: int) -> Json:
    """A result under the name of the call that it answers, which is the one at its place."""
    content = message["content"]
    if isinstance(content, str):
        try:
            content = json.loads(content)
        except (ValueError, RecursionError):
            content = message["content"]
    name = calls[index]["function"]["name"] if index < len(calls) else message.get("tool_call_id", "")
    return {"name": name, "response": content}


def _is_answer(message: Json) -> bool:
    return message["role"] == "assistant" and not message.get("tool_calls") and bool(message["content"])

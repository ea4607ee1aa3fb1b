"""Messages as the JSON-like values that chat templates read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from protocol.chat import AudioPart, ChatMessage, ContentPart, ImagePart, TextPart, Tool, ToolCall
from worker.prompt.capabilities import TemplateCapabilities
from worker.prompt.errors import PromptError

Json = dict[str, Any]
MAX_JSON_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class MessageContext:
    """Messages in a template's shape, and the media that the markers in their texts stand for, in order."""

    messages: list[Json]
    media: tuple[ImagePart | AudioPart, ...]


def message_context(
    messages: Sequence[ChatMessage], capabilities: TemplateCapabilities, media_marker: str, keep_developer: bool
) -> MessageContext:
    """Shape messages as the template can take them.

    Content becomes a string or a list of parts, arguments an object or a string, a system message that the template
    would ignore joins the message after it, and the `developer` role reads `system` unless `keep_developer`.
    """
    shaped: list[Json] = []
    media: list[ImagePart | AudioPart] = []
    for position, message in enumerate(messages):
        shaped.append(_message(message, f"messages[{position}]", capabilities, media_marker, media))
    if not keep_developer:
        for entry in shaped:
            if entry["role"] == "developer":
                entry["role"] = "system"
    if not capabilities.system_role:
        _merge_system(shaped)
    return MessageContext(shaped, tuple(media))


def tool_context(tools: Sequence[Tool]) -> list[Json]:
    """Tools as OpenAI's API writes them."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": json_object(tool.parameters_json, f"tools[{position}].function.parameters"),
            },
        }
        for position, tool in enumerate(tools)
    ]


def json_object(data: bytes, param: str) -> Json:
    """Decode a JSON object that came inside a request."""
    if len(data) > MAX_JSON_BYTES:
        raise PromptError(f"{param} is larger than {MAX_JSON_BYTES} bytes", param)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PromptError(f"{param} is not valid JSON: {error}", param) from error
    if not isinstance(value, dict):
        raise PromptError(f"{param} must be a JSON object", param)
    return cast(Json, value)


def plain_text(content: str | tuple[ContentPart, ...] | None) -> str:
    """The text of a message's content, parts joined by line breaks."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def _message(
    message: ChatMessage,
    param: str,
    capabilities: TemplateCapabilities,
    media_marker: str,
    media: list[ImagePart | AudioPart],
) -> Json:
    entry: Json = json_object(message.extra_json, param) if message.extra_json else {}
    entry["role"] = message.role
    entry["content"] = _content(message.content, f"{param}.content", capabilities, media_marker, media)
    if message.reasoning_content:
        _add_reasoning(entry, message.reasoning_content, capabilities)
    if message.name:
        entry["name"] = message.name
    if message.tool_call_id:
        entry["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        entry["tool_calls"] = [
            _tool_call(call, f"{param}.tool_calls[{index}].function.arguments", capabilities)
            for index, call in enumerate(message.tool_calls)
        ]
    return entry


def _add_reasoning(entry: Json, reasoning: str, capabilities: TemplateCapabilities) -> None:
    if capabilities.reasoning_form == "chunks":
        content = entry["content"]
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
        entry["content"] = [{"type": "thinking", "thinking": reasoning}, *parts]
        return
    entry["reasoning_content"] = reasoning
    if capabilities.reasoning_form == "thinking":
        entry["thinking"] = reasoning


def call_arguments(call: ToolCall, param: str) -> Any:
    """The arguments of a call in the history as values. Raises PromptError, naming `param`, for what is no JSON."""
    try:
        return json.loads(call.arguments) if call.arguments else {}
    except (ValueError, RecursionError) as error:
        raise PromptError(f"{param} is not valid JSON: {error}", param) from error


def _tool_call(call: ToolCall, param: str, capabilities: TemplateCapabilities) -> Json:
    arguments: Any = call.arguments
    decoded = call_arguments(call, param)
    if capabilities.object_arguments:
        arguments = decoded
    entry: Json = {"type": "function", "function": {"name": call.name, "arguments": arguments}}
    if call.id:
        entry["id"] = call.id
    return entry


def _content(
    content: str | tuple[ContentPart, ...] | None,
    param: str,
    capabilities: TemplateCapabilities,
    media_marker: str,
    media: list[ImagePart | AudioPart],
) -> str | list[Json]:
    if content is None:
        content = ""
    if isinstance(content, str):
        _refuse_marker(content, media_marker, param)
        if capabilities.string_content:
            return content
        return [{"type": "text", "text": content}]
    has_media = False
    for part in content:
        if isinstance(part, TextPart):
            _refuse_marker(part.text, media_marker, param)
        else:
            has_media = True
            media.append(part)
    if capabilities.typed_content and not has_media:
        return [{"type": "text", "text": part.text} for part in content if isinstance(part, TextPart)]
    joined = _join_parts(content, media_marker)
    return joined if capabilities.string_content else [{"type": "text", "text": joined}]


def _join_parts(parts: tuple[ContentPart, ...], media_marker: str) -> str:
    """One text: a line break between two text parts, none beside a medium."""
    text = ""
    after_medium = False
    for part in parts:
        if isinstance(part, TextPart):
            if text and not after_medium:
                text += "\n"
            text += part.text
            after_medium = False
        else:
            text += media_marker
            after_medium = True
    return text


def _refuse_marker(text: str, media_marker: str, param: str) -> None:
    if media_marker in text:
        raise PromptError(f"{param} contains the reserved text {media_marker!r}", param)


def _merge_system(messages: list[Json]) -> None:
    if not messages or messages[0]["role"] != "system":
        return
    system = messages.pop(0)
    if messages:
        first, second = _as_text(system["content"]), messages[0]["content"]
        if isinstance(second, list):
            messages[0]["content"] = [{"type": "text", "text": first + "\n"}, *second]
        else:
            messages[0]["content"] = f"{first}\n{second}"


def _as_text(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "\n".join(str(part["text"]) for part in content)

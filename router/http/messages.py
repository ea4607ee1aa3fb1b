"""OpenAI's chat messages and tools, and how they become a `ChatPrompt`."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from protocol.chat import AudioPart, ChatMessage, ContentPart, TextPart, Tool, ToolCall
from router.http.errors import invalid
from router.http.fields import absent, present
from router.http.media import image_part, media_bytes


class TextContent(Struct, tag="text"):
    text: str


class RefusalContent(Struct, tag="refusal"):
    refusal: str


class ImageUrl(Struct):
    url: str
    detail: str | None = None


class ImageContent(Struct, tag="image_url"):
    image_url: str | ImageUrl


class InputAudio(Struct):
    data: str
    format: str | None = None


class AudioContent(Struct, tag="input_audio"):
    input_audio: InputAudio


Content = TextContent | RefusalContent | ImageContent | AudioContent


class FunctionCall(Struct):
    name: str
    arguments: msgspec.Raw = absent()


class MessageToolCall(Struct):
    function: FunctionCall
    id: str | None = None
    type: str | None = None


class Message(Struct):
    """One message of the history, of any role that the model's template knows."""

    role: str
    content: str | list[Content] | None = None
    reasoning_content: str | None = None
    tool_calls: list[MessageToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class Function(Struct):
    name: str
    description: str | None = None
    parameters: msgspec.Raw = absent()
    strict: bool | None = None


class ToolField(Struct):
    function: Function
    type: Literal["function"] = "function"


class NamedFunction(Struct):
    name: str


class NamedTool(Struct):
    function: NamedFunction
    type: str | None = None


def chat_messages(messages: list[Message] | None) -> tuple[ChatMessage, ...]:
    """The history as the worker takes it. Raises a 400 `ApiError` that names the field."""
    if not messages:
        what = "'messages' is required" if messages is None else "'messages' must not be empty"
        raise invalid(what, "messages")
    return tuple(_chat_message(message, f"messages[{index}]") for index, message in enumerate(messages))


def _chat_message(message: Message, path: str) -> ChatMessage:
    if message.content is None and message.role != "assistant":
        raise invalid(f"{path}: all non-assistant messages must contain 'content'", f"{path}.content")
    if message.content is None and not message.tool_calls and not message.reasoning_content:
        raise invalid(f"{path}: an assistant message must contain either 'content' or 'tool_calls'", f"{path}.content")
    content: str | tuple[ContentPart, ...] | None
    if isinstance(message.content, list):
        content = tuple(_part(part, f"{path}.content[{index}]") for index, part in enumerate(message.content))
    else:
        content = message.content
    calls = tuple(
        ToolCall(
            name=call.function.name,
            arguments=_arguments(call.function.arguments, f"{path}.tool_calls[{index}].function.arguments"),
            id=call.id or "",
        )
        for index, call in enumerate(message.tool_calls or ())
    )
    return ChatMessage(
        role=message.role,
        content=content,
        reasoning_content=message.reasoning_content or "",
        tool_calls=calls,
        tool_call_id=message.tool_call_id or "",
        name=message.name or "",
    )


def _part(part: Content, path: str) -> ContentPart:
    match part:
        case TextContent(text=text) | RefusalContent(refusal=text):
            return TextPart(text)
        case ImageContent(image_url=image):
            url = image if isinstance(image, str) else image.url
            return image_part(url, f"{path}.image_url")
        case AudioContent(input_audio=audio):
            param = f"{path}.input_audio"
            return AudioPart(media_bytes(audio.data, param), audio.format or "", param)


def _arguments(raw: msgspec.Raw, path: str) -> str:
    """OpenAI sends JSON text in a string; an object is accepted too, as some clients send one."""
    if not present(raw):
        return "{}"
    data = bytes(raw)
    if data.startswith(b'"'):
        text: str = msgspec.json.decode(data)
        return text or "{}"
    if data.startswith(b"{"):
        return data.decode()
    raise invalid(f"{path}: expected a string of JSON", path)


def chat_tools(tools: list[ToolField] | None) -> tuple[Tool, ...]:
    return tuple(
        Tool(
            name=tool.function.name,
            description=tool.function.description or "",
            parameters_json=_object(tool.function.parameters, f"tools[{index}].function.parameters"),
        )
        for index, tool in enumerate(tools or ())
    )


def _object(raw: msgspec.Raw, path: str) -> bytes:
    if not present(raw):
        return b"{}"
    if not bytes(raw).startswith(b"{"):
        raise invalid(f"{path}: expected an object", path)
    return bytes(raw)


def tool_choice(choice: str | NamedTool | None, tools: tuple[Tool, ...]) -> str:
    """`auto`, `none`, `required`, or `name:` and a tool's name."""
    if choice is None:
        return "auto"
    if isinstance(choice, str):
        if choice not in ("auto", "none", "required"):
            raise invalid(f"tool_choice: expected auto, none, required or a function, got '{choice}'", "tool_choice")
        if choice == "required" and not tools:
            raise invalid("tool_choice: 'required' needs tools", "tool_choice")
        return choice
    if all(tool.name != choice.function.name for tool in tools):
        raise invalid(f"tool_choice: there is no tool named '{choice.function.name}'", "tool_choice.function.name")
    return f"name:{choice.function.name}"

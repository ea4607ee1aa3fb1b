"""Prompts in every form a request may bring them. Templates are rendered by the worker, not by the router."""

from __future__ import annotations

from msgspec import Struct


class TextPart(Struct, frozen=True, tag="text", omit_defaults=True):
    text: str


class ImagePart(Struct, frozen=True, tag="image", omit_defaults=True):
    """An encoded image (PNG, JPEG, …) as its file's bytes. `param` is the field of the request that it came in."""

    data: bytes
    param: str = ""


class AudioPart(Struct, frozen=True, tag="audio", omit_defaults=True):
    """Encoded audio as its file's bytes; `format` is `wav` or `mp3`, `param` the field that it came in."""

    data: bytes
    format: str = ""
    param: str = ""


ContentPart = TextPart | ImagePart | AudioPart

MEDIA_MARKER = "<__media__>"
"""Stands for a file in the text of a prompt."""


class ToolCall(Struct, frozen=True, omit_defaults=True):
    """A call in the history. `arguments` is JSON text."""

    name: str
    arguments: str
    id: str = ""


class ChatMessage(Struct, frozen=True, omit_defaults=True):
    """One message. `content` is None only for an assistant message that has tool calls.

    `extra_json` is a JSON object of further fields that a template may read.
    """

    role: str
    content: str | tuple[ContentPart, ...] | None = None
    reasoning_content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    extra_json: bytes = b""


class Tool(Struct, frozen=True, omit_defaults=True):
    """A function the model may call. `parameters_json` is its JSON Schema."""

    name: str
    description: str = ""
    parameters_json: bytes = b"{}"


class ChatPrompt(Struct, frozen=True, tag="chat", omit_defaults=True):
    """A conversation, rendered by the model's template.

    `tool_choice` is `auto`, `none`, `required`, or the name of one tool behind `name:`. `template_kwargs_json` is a
    JSON object of template variables. `reasoning_budget` is tokens, -1 for no limit.
    """

    messages: tuple[ChatMessage, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: str = "auto"
    parallel_tool_calls: bool = False
    template_kwargs_json: bytes = b"{}"
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    reasoning_format: str = "auto"
    reasoning_budget: int = -1
    enable_thinking: bool | None = None
    chat_template: str = ""
    """A template for this request alone; empty for the model's."""


class TextPrompt(Struct, frozen=True, tag="plain", omit_defaults=True):
    """Text, tokenized with special tokens parsed; a BOS token is added where the model wants one.

    `media` are the files that the media markers in the text stand for, in order.
    """

    text: str
    add_special: bool = True
    parse_special: bool = True
    media: tuple[ContentPart, ...] = ()


class MixedPrompt(Struct, frozen=True, tag="mixed", omit_defaults=True):
    """Strings and tokens in order, as llama-server's `prompt` array allows. All tokens for a token prompt."""

    parts: tuple[str | tuple[int, ...], ...]


class InfillPrompt(Struct, frozen=True, tag="infill", omit_defaults=True):
    """Fill in the middle. `extra` are (file name, text) pairs of the repository's context."""

    prefix: str
    suffix: str
    prompt: str = ""
    extra: tuple[tuple[str, str], ...] = ()


Prompt = ChatPrompt | TextPrompt | MixedPrompt | InfillPrompt


def files_of(prompt: Prompt) -> tuple[ImagePart | AudioPart, ...]:
    """The images and sounds that come with a prompt, in order."""
    if isinstance(prompt, TextPrompt):
        return tuple(part for part in prompt.media if not isinstance(part, TextPart))
    if not isinstance(prompt, ChatPrompt):
        return ()
    return tuple(
        part
        for message in prompt.messages
        if isinstance(message.content, tuple)
        for part in message.content
        if not isinstance(part, TextPart)
    )

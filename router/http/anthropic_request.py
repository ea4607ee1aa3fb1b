"""The body of `/v1/messages` and how it becomes a prompt."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from protocol.chat import ChatMessage, ChatPrompt, ContentPart, ImagePart, TextPart, Tool, ToolCall
from router.config.traits import RequestDefaults
from router.http.errors import invalid
from router.http.fields import GenerationFields, absent, present
from router.http.media import image_part


class TextBlock(Struct, tag="text"):
    text: str


class Base64Source(Struct, tag="base64"):
    data: str
    media_type: str | None = None


class UrlSource(Struct, tag="url"):
    url: str


class ImageBlock(Struct, tag="image"):
    source: Base64Source | UrlSource


class ToolUseBlock(Struct, tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw = absent()


class ToolResultBlock(Struct, tag="tool_result"):
    tool_use_id: str
    content: str | list[TextBlock | ImageBlock] | None = None
    is_error: bool | None = None


class ThinkingBlock(Struct, tag="thinking"):
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Struct, tag="redacted_thinking"):
    data: str | None = None


Block = TextBlock | ImageBlock | ToolUseBlock | ToolResultBlock | ThinkingBlock | RedactedThinkingBlock


class InputMessage(Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class InputTool(Struct):
    """A tool of the client's own; those that Anthropic's servers run do not exist here."""

    name: str
    description: str | None = None
    input_schema: msgspec.Raw = absent()
    type: Literal["custom"] | None = None


class AutoChoice(Struct, tag="auto"):
    disable_parallel_tool_use: bool | None = None


class AnyChoice(Struct, tag="any"):
    disable_parallel_tool_use: bool | None = None


class OneChoice(Struct, tag="tool"):
    name: str
    disable_parallel_tool_use: bool | None = None


class NoChoice(Struct, tag="none"):
    pass


Choice = AutoChoice | AnyChoice | OneChoice | NoChoice


class Thinking(Struct):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None


class OutputFormat(Struct):
    type: Literal["json_schema"]
    schema: msgspec.Raw


class OutputConfig(Struct):
    format: OutputFormat | None = None
    effort: str | None = None


class MessagesRequest(GenerationFields, kw_only=True):
    messages: list[InputMessage] | None = None
    system: str | list[TextBlock] | None = None
    tools: list[InputTool] | None = None
    tool_choice: Choice | None = None
    stop_sequences: list[str] | None = None
    thinking: Thinking | None = None
    output_format: OutputFormat | None = None
    output_config: OutputConfig | None = None

    @property
    def format(self) -> OutputFormat | None:
        """The structured output asked for, by either of its two names."""
        return self.output_format or (self.output_config.format if self.output_config is not None else None)


def chat_prompt(request: MessagesRequest, defaults: RequestDefaults) -> ChatPrompt:
    """The conversation as the worker takes it. Raises a 400 `ApiError` that names the field."""
    if not request.messages:
        raise invalid("messages: at least one message is required", "messages")
    messages: list[ChatMessage] = []
    if request.system:
        system = request.system
        messages.append(
            ChatMessage("system", system if isinstance(system, str) else "\n".join(block.text for block in system))
        )
    for index, message in enumerate(request.messages):
        messages.extend(_messages(message, f"messages[{index}]"))
    tools = tuple(
        Tool(tool.name, tool.description or "", bytes(tool.input_schema) if present(tool.input_schema) else b"{}")
        for tool in request.tools or ()
    )
    choice = request.tool_choice
    thinking = request.thinking
    last = messages[-1]
    continues = last.role == "assistant" and not last.tool_calls and isinstance(last.content, str)
    budget = thinking.budget_tokens if thinking is not None else None
    return ChatPrompt(
        messages=tuple(messages),
        tools=tools,
        tool_choice=_tool_choice(choice, tools),
        parallel_tool_calls=not (
            choice is not None and not isinstance(choice, NoChoice) and choice.disable_parallel_tool_use
        ),
        template_kwargs_json=defaults.template_kwargs_json,
        add_generation_prompt=not continues,
        continue_final_message=continues,
        reasoning_format=defaults.reasoning_format,
        reasoning_budget=defaults.reasoning_budget if budget is None else budget,
        enable_thinking=defaults.enable_thinking if thinking is None else thinking.type != "disabled",
        chat_template=defaults.chat_template,
    )


def _messages(message: InputMessage, path: str) -> list[ChatMessage]:
    """One message of the client; tool results in it become messages of their own, before the rest."""
    if isinstance(message.content, str):
        return [ChatMessage(message.role, message.content)]
    results: list[ChatMessage] = []
    parts: list[ContentPart] = []
    calls: list[ToolCall] = []
    reasoning: list[str] = []
    for index, block in enumerate(message.content):
        where = f"{path}.content[{index}]"
        match block:
            case TextBlock(text=text):
                parts.append(TextPart(text))
            case ImageBlock():
                parts.append(_image(block, where))
            case ToolUseBlock(id=id, name=name, input=arguments):
                calls.append(ToolCall(name, bytes(arguments).decode() if present(arguments) else "{}", id))
            case ToolResultBlock():
                results.append(_result(block, where))
            case ThinkingBlock(thinking=thought):
                reasoning.append(thought)
            case RedactedThinkingBlock():
                pass
    if not parts and not calls and not reasoning:
        return results
    content = _content(parts)
    if content == "" and (calls or reasoning):
        content = None if calls else ""
    return [
        *results,
        ChatMessage(message.role, content, reasoning_content="".join(reasoning), tool_calls=tuple(calls)),
    ]


def _content(parts: list[ContentPart]) -> str | tuple[ContentPart, ...] | None:
    """Plain text where there is nothing else: every template can deal with it."""
    if all(isinstance(part, TextPart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(parts)


def _image(block: ImageBlock, path: str) -> ImagePart:
    source = block.source
    encoded = source.data if isinstance(source, Base64Source) else source.url
    return image_part(encoded, f"{path}.source")


def _result(block: ToolResultBlock, path: str) -> ChatMessage:
    content = block.content or ""
    if isinstance(content, str):
        return ChatMessage("tool", content, tool_call_id=block.tool_use_id)
    parts: list[ContentPart] = [
        TextPart(part.text) if isinstance(part, TextBlock) else _image(part, f"{path}.content[{index}]")
        for index, part in enumerate(content)
    ]
    return ChatMessage("tool", _content(parts), tool_call_id=block.tool_use_id)


def _tool_choice(choice: Choice | None, tools: tuple[Tool, ...]) -> str:
    match choice:
        case AnyChoice():
            if not tools:
                raise invalid("tool_choice: 'any' needs tools", "tool_choice")
            return "required"
        case OneChoice(name=name):
            if all(tool.name != name for tool in tools):
                raise invalid(f"tool_choice.name: there is no tool named '{name}'", "tool_choice.name")
            return f"name:{name}"
        case NoChoice():
            return "none"
        case _:
            return "auto"

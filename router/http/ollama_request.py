"""The bodies of Ollama's API and how they become work."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from protocol.chat import ChatMessage, ChatPrompt, ContentPart, InfillPrompt, Prompt, TextPart, TextPrompt, ToolCall
from protocol.load import ModelInfo
from protocol.sampling import Constraint, JsonSchema
from router.config.model import Model
from router.config.traits import RequestDefaults
from router.http.chat_request import template_variables
from router.http.errors import invalid
from router.http.fields import GenerationFields, Positive, absent, present
from router.http.messages import ToolField, chat_tools
from router.http.prompts import media_part
from router.http.sampling import schema_constraint

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"^([-+]?)((?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|ms|s|m|h))+$")
_PIECE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


class Options(GenerationFields, kw_only=True):
    """Ollama's names where they differ from llama-server's; what concerns loading never reloads a model."""

    num_predict: Annotated[int, Meta(ge=-2, le=2**31 - 1)] | None = None
    num_keep: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    num_ctx: Positive | None = None


class FunctionCall(Struct):
    name: str
    arguments: msgspec.Raw = absent()


class HistoryCall(Struct):
    function: FunctionCall
    id: str | None = None


class Message(Struct):
    role: str
    content: str | None = None
    images: list[str] | None = None
    thinking: str | None = None
    tool_calls: list[HistoryCall] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class Request(Struct, kw_only=True):
    """What chat and generate have in common. Ollama streams unless told not to."""

    model: str | None = None
    stream: bool | None = None
    format: msgspec.Raw = absent()
    options: Options | None = None
    keep_alive: str | float | None = None
    think: bool | Literal["low", "medium", "high"] | None = None

    @property
    def fields(self) -> GenerationFields:
        """The options as the shared fields."""
        fields = self.options or Options()
        if fields.num_predict is not None:
            fields.n_predict = max(fields.num_predict, -1)
        if fields.num_keep is not None:
            fields.n_keep = fields.num_keep
        fields.stream = self.stream is not False
        return fields


class ChatRequest(Request, kw_only=True):
    messages: list[Message] | None = None
    tools: list[ToolField] | None = None


class GenerateRequest(Request, kw_only=True):
    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    images: list[str] | None = None
    raw: bool | None = None


def chat_prompt(request: ChatRequest, defaults: RequestDefaults) -> ChatPrompt:
    messages = tuple(_message(message, f"messages[{index}]") for index, message in enumerate(request.messages or ()))
    last = messages[-1]
    continues = last.role == "assistant" and not last.tool_calls
    return _prompt(request, defaults, messages, continues=continues, tools=request.tools)


def generate_prompt(request: GenerateRequest, defaults: RequestDefaults) -> Prompt:
    """The prompt as a user's message in the model's template, as it is if `raw`, or around a gap."""
    prompt = request.prompt or ""
    if request.suffix:
        return InfillPrompt(prefix=prompt, suffix=request.suffix)
    if request.raw:
        media = tuple(media_part(data, f"images[{i}]") for i, data in enumerate(request.images or ()))
        return TextPrompt(prompt, media=media)
    messages = [_message(Message("user", prompt, request.images), "prompt")]
    if request.system:
        messages.insert(0, ChatMessage("system", request.system))
    return _prompt(request, defaults, tuple(messages), continues=False, tools=None)


def _prompt(
    request: Request,
    defaults: RequestDefaults,
    messages: tuple[ChatMessage, ...],
    *,
    continues: bool,
    tools: list[ToolField] | None,
) -> ChatPrompt:
    effort = request.think if isinstance(request.think, str) else None
    kwargs, thinking = template_variables(None, effort, defaults)
    if request.think is not None:
        thinking = bool(request.think)
    return ChatPrompt(
        messages=messages,
        tools=chat_tools(tools),
        parallel_tool_calls=True,
        template_kwargs_json=kwargs,
        add_generation_prompt=not continues,
        continue_final_message=continues,
        reasoning_format=defaults.reasoning_format,
        reasoning_budget=defaults.reasoning_budget,
        enable_thinking=thinking,
        chat_template=defaults.chat_template,
    )


def _message(message: Message, path: str) -> ChatMessage:
    content: str | tuple[ContentPart, ...] = message.content or ""
    if message.images:
        files = [media_part(data, f"{path}.images[{i}]") for i, data in enumerate(message.images)]
        content = (*((TextPart(message.content),) if message.content else ()), *files)
    calls = tuple(
        ToolCall(
            call.function.name,
            bytes(call.function.arguments).decode() if present(call.function.arguments) else "{}",
            call.id or "",
        )
        for call in message.tool_calls or ()
    )
    return ChatMessage(
        message.role,
        content,
        reasoning_content=message.thinking or "",
        tool_calls=calls,
        tool_call_id=message.tool_call_id or "",
        name=message.tool_name or "",
    )


def constraint(format: msgspec.Raw) -> Constraint | None:
    """`json`, or a JSON Schema."""
    if not present(format) or bytes(format) == b'""':
        return None
    if bytes(format) == b'"json"':
        return JsonSchema(b"{}")
    return schema_constraint(bytes(format), "format")


def keep_alive(value: str | float | None) -> float | None:
    """Seconds of idleness after which the model unloads: 0 at once, negative never, None as configured."""
    if value is None or isinstance(value, float):
        return value
    try:
        return float(value)
    except ValueError:
        pass
    if not _DURATION.match(value):
        raise invalid(f"keep_alive: expected a duration such as 5m or a number of seconds, got '{value}'", "keep_alive")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PIECE.findall(value))
    return -seconds if value.startswith("-") else seconds


def check_context(request: Request, model: Model, info: ModelInfo | None) -> None:
    """Refuse a context that is larger than the model's: no request reloads a model."""
    wanted = request.options.num_ctx if request.options is not None else None
    if wanted is None:
        return
    limit = context_of(model, info)
    if limit and wanted > limit:
        raise invalid(f"options.num_ctx: the model '{model.id}' has a context of {limit} tokens, not {wanted}")


def context_of(model: Model, info: ModelInfo | None) -> int:
    """Tokens that one request may have; 0 if it is not known before the first load."""
    if info is not None:
        return info.n_ctx_slot or info.n_ctx
    if model.parameters is not None and model.parameters.ctx_size:
        return model.parameters.ctx_size
    return model.facts.n_ctx_train if model.facts is not None else 0

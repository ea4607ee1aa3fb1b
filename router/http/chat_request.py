"""The body of `/v1/chat/completions` and how it becomes a prompt and a constraint."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from protocol.chat import ChatPrompt
from protocol.sampling import Constraint, JsonSchema
from router.config.traits import RequestDefaults
from router.http.errors import invalid
from router.http.fields import RAW_ABSENT, GenerationFields, Limit, absent, present
from router.http.generation import pick
from router.http.messages import Message, NamedTool, ToolField, chat_messages, chat_tools, tool_choice
from router.http.sampling import schema_constraint

MAX_TOP_LOGPROBS = 100

Kwargs = dict[str, msgspec.Raw]


class SchemaField(Struct):
    name: str | None = None
    description: str | None = None
    schema: msgspec.Raw = absent()
    strict: bool | None = None


class ResponseFormat(Struct):
    """`schema` beside `json_object` is llama-server's short form."""

    type: str
    json_schema: SchemaField | None = None
    schema: msgspec.Raw = absent()


class ChatFields(GenerationFields, kw_only=True):
    """What shapes the prompt and the output of a chat, whatever the dialect names it."""

    messages: list[Message] | None = None
    tools: list[ToolField] | None = None
    tool_choice: str | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    chat_template: str | None = None
    chat_template_kwargs: Kwargs | None = None
    reasoning_effort: str | None = None
    thinking_budget_tokens: Limit | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | str | None = None


class ChatRequest(ChatFields, kw_only=True):
    logprobs: bool | int | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    n_probs: Annotated[int, Meta(ge=0, le=MAX_TOP_LOGPROBS)] | None = None


def n_probs(request: ChatRequest) -> int:
    """How many alternatives to report per token, the sampled one at least; 0 for no probabilities at all."""
    if request.n_probs is not None:
        return request.n_probs
    if request.logprobs is None or request.logprobs is False:
        if request.top_logprobs:
            raise invalid("top_logprobs requires logprobs to be set to true", "top_logprobs")
        return 0
    if request.logprobs is not True:
        return int(request.logprobs)
    return max(pick(request.top_logprobs, 0), 1)


def constraint(response_format: ResponseFormat | None) -> Constraint | None:
    """What `response_format` demands of the output."""
    if response_format is None or response_format.type in ("", "text"):
        return None
    if response_format.type == "json_object":
        if present(response_format.schema):
            return schema_constraint(bytes(response_format.schema), "response_format.schema")
        return JsonSchema(b"{}")
    if response_format.type == "json_schema":
        wrapper = response_format.json_schema
        schema = response_format.schema if wrapper is None else wrapper.schema
        if not present(schema):
            raise invalid("response_format.json_schema.schema is required", "response_format.json_schema.schema")
        return schema_constraint(bytes(schema), "response_format.json_schema.schema")
    raise invalid(
        f"response_format.type: expected text, json_object or json_schema, got '{response_format.type}'",
        "response_format.type",
    )


def chat_prompt(request: ChatFields, defaults: RequestDefaults) -> ChatPrompt:
    """The conversation, with the template's variables. Raises `ApiError` 400."""
    messages = chat_messages(request.messages)
    tools = chat_tools(request.tools)
    choice = tool_choice(request.tool_choice, tools)
    if tools and choice != "none" and request.grammar:
        raise invalid("a grammar cannot be combined with tools", "grammar")
    kwargs, thinking = template_variables(request.chat_template_kwargs, request.reasoning_effort, defaults)
    continues = _continues(request)
    budget = pick(request.reasoning_budget_tokens, pick(request.thinking_budget_tokens, -1))
    return ChatPrompt(
        messages=messages,
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=pick(request.parallel_tool_calls, True),
        template_kwargs_json=kwargs,
        add_generation_prompt=pick(request.add_generation_prompt, True) and not continues,
        continue_final_message=continues,
        reasoning_format=reasoning_format(pick(request.reasoning_format, defaults.reasoning_format)),
        reasoning_budget=defaults.reasoning_budget if budget == -1 else budget,
        enable_thinking=thinking,
        chat_template=request.chat_template or defaults.chat_template,
    )


def template_variables(
    given: Kwargs | None, effort: str | None, defaults: RequestDefaults
) -> tuple[bytes, bool | None]:
    """The preset's variables with the request's over them (a JSON object), and whether thinking is on or off."""
    kwargs: Kwargs = dict(msgspec.json.decode(defaults.template_kwargs_json, type=Kwargs))
    kwargs.update(given or {})
    thinking = defaults.enable_thinking
    flag = bytes(kwargs.get("enable_thinking", b""))
    if flag in (b"true", b"false"):
        thinking = flag == b"true"
    elif flag not in RAW_ABSENT:
        raise invalid("chat_template_kwargs.enable_thinking: expected bool", "chat_template_kwargs.enable_thinking")
    chosen = pick(effort, defaults.reasoning_effort)
    if chosen == "none":
        thinking = False
        kwargs.pop("reasoning_effort", None)
    elif chosen and (effort or "reasoning_effort" not in kwargs):
        kwargs["reasoning_effort"] = msgspec.Raw(msgspec.json.encode(chosen))
    return msgspec.json.encode(kwargs), thinking


def _continues(request: ChatFields) -> bool:
    """Whether the last message is the beginning of the answer (prefill)."""
    messages = request.messages or []
    asked = request.continue_final_message
    last_is_answer = bool(messages) and messages[-1].role == "assistant"
    if asked is None or asked is False:
        if asked is False or not (last_is_answer) or messages[-1].tool_calls:
            return False
        if len(messages) > 1 and messages[-2].role == "assistant":
            raise invalid("there cannot be two or more assistant messages at the end of the list", "messages")
        return True
    if not last_is_answer:
        raise invalid("continue_final_message: the last message is not the assistant's", "continue_final_message")
    if messages[-1].tool_calls:
        raise invalid("continue_final_message: an assistant message with tool calls cannot go on", "messages")
    if request.add_generation_prompt:
        raise invalid("set either add_generation_prompt or continue_final_message", "continue_final_message")
    return True


def reasoning_format(name: str) -> str:
    """The name, if it is one of llama-server's."""
    if name not in ("auto", "none", "deepseek", "deepseek-legacy"):
        raise invalid(
            f"reasoning_format: expected auto, none, deepseek or deepseek-legacy, got '{name}'", "reasoning_format"
        )
    return name

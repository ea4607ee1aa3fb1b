"""The body of `/v1/responses` and how its items become a prompt."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from protocol.chat import AudioPart, ChatMessage, ChatPrompt, ContentPart, TextPart, Tool, ToolCall
from protocol.sampling import Constraint, JsonSchema
from router.config.traits import RequestDefaults
from router.http.chat_request import Kwargs, reasoning_format, template_variables
from router.http.decoding import decode_part
from router.http.errors import invalid
from router.http.fields import GenerationFields, Limit, Positive, absent, present
from router.http.generation import pick
from router.http.media import image_part, media_bytes
from router.http.messages import InputAudio
from router.http.sampling import schema_constraint


class InputText(Struct, tag="input_text"):
    text: str


class OutputText(Struct, tag="output_text"):
    text: str


class RefusalText(Struct, tag="refusal"):
    refusal: str


class InputImage(Struct, tag="input_image"):
    image_url: str | None = None
    detail: str | None = None


class InputSound(Struct, tag="input_audio"):
    input_audio: InputAudio


Part = InputText | OutputText | RefusalText | InputImage | InputSound


class Kind(Struct):
    """What an item is: items without a type are messages."""

    type: str | None = None


class MessageItem(Struct):
    role: str
    content: str | list[Part]


class FunctionCallItem(Struct):
    call_id: str
    name: str
    arguments: str = "{}"


class FunctionOutputItem(Struct):
    call_id: str
    output: str | list[Part]


class ReasoningText(Struct):
    text: str


class ReasoningItem(Struct):
    content: list[ReasoningText] | None = None
    summary: list[ReasoningText] | None = None


class FunctionTool(Struct, tag="function"):
    name: str
    description: str | None = None
    parameters: msgspec.Raw = absent()
    strict: bool | None = None


class NamedFunction(Struct):
    name: str
    type: Literal["function"] = "function"


class TextFormat(Struct):
    type: str
    name: str | None = None
    schema: msgspec.Raw = absent()
    strict: bool | None = None


class TextOptions(Struct):
    format: TextFormat | None = None
    verbosity: str | None = None


class ReasoningOptions(Struct):
    effort: str | None = None
    summary: str | None = None


class ResponsesRequest(GenerationFields, kw_only=True):
    input: str | list[msgspec.Raw] | None = None
    instructions: str | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: str | NamedFunction | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: Positive | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    truncation: str | None = None
    top_logprobs: Limit | None = None
    chat_template_kwargs: Kwargs | None = None


_kind = msgspec.json.Decoder(Kind)
_message = msgspec.json.Decoder(MessageItem)
_call = msgspec.json.Decoder(FunctionCallItem)
_output = msgspec.json.Decoder(FunctionOutputItem)
_reasoning = msgspec.json.Decoder(ReasoningItem)

History = tuple[ChatMessage, ...]


def input_messages(request: ResponsesRequest) -> History:
    """The messages that the input adds to the conversation. Raises a 400 `ApiError` that names the field."""
    if request.input is None or request.input == []:
        raise invalid("'input' is required", "input")
    if isinstance(request.input, str):
        return (ChatMessage("user", request.input),)
    messages: list[ChatMessage] = []
    for index, raw in enumerate(request.input):
        _add(messages, raw, f"input[{index}]")
    return tuple(messages)


def _add(messages: list[ChatMessage], raw: msgspec.Raw, path: str) -> None:
    kind = decode_part(_kind, raw, path).type or "message"
    if kind == "message":
        item = decode_part(_message, raw, path)
        content = _content(item.content, f"{path}.content")
        if item.role == "assistant":
            join(messages, ChatMessage("assistant", content))
        else:
            messages.append(ChatMessage(item.role, content))
    elif kind == "function_call":
        call = decode_part(_call, raw, path)
        made = ToolCall(call.name, call.arguments or "{}", call.call_id)
        join(messages, ChatMessage("assistant", None, tool_calls=(made,)))
    elif kind == "function_call_output":
        output = decode_part(_output, raw, path)
        messages.append(ChatMessage("tool", _content(output.output, f"{path}.output"), tool_call_id=output.call_id))
    elif kind == "reasoning":
        thought = decode_part(_reasoning, raw, path)
        text = "".join(part.text for part in thought.content or thought.summary or ())
        join(messages, ChatMessage("assistant", None, reasoning_content=text))
    else:
        raise invalid(f"{path}.type: items of the type '{kind}' are not supported", f"{path}.type")


def join(messages: list[ChatMessage], part: ChatMessage) -> None:
    """Reasoning, text and calls of one turn are items of their own here, but one message of the assistant."""
    last = messages[-1] if messages else None
    if last is None or last.role != "assistant" or (last.content is not None and part.content is not None):
        messages.append(part)
        return
    messages[-1] = msgspec.structs.replace(
        last,
        content=part.content if last.content is None else last.content,
        reasoning_content=last.reasoning_content + part.reasoning_content,
        tool_calls=last.tool_calls + part.tool_calls,
    )


def _content(content: str | list[Part], path: str) -> str | tuple[ContentPart, ...]:
    if isinstance(content, str):
        return content
    parts = [_part(part, f"{path}[{index}]") for index, part in enumerate(content)]
    if all(isinstance(part, TextPart) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, TextPart))
    return tuple(parts)


def _part(part: Part, path: str) -> ContentPart:
    match part:
        case InputText(text=text) | OutputText(text=text) | RefusalText(refusal=text):
            return TextPart(text)
        case InputImage(image_url=url):
            if url is None:
                raise invalid(f"{path}.image_url: a data: URL is needed, files are not kept here", f"{path}.image_url")
            return image_part(url, f"{path}.image_url")
        case InputSound(input_audio=audio):
            param = f"{path}.input_audio"
            return AudioPart(media_bytes(audio.data, param), audio.format or "", param)


def responses_prompt(request: ResponsesRequest, defaults: RequestDefaults, history: History) -> ChatPrompt:
    """The whole conversation: instructions, what went before, and the new input."""
    messages = [*history, *input_messages(request)]
    if request.instructions:
        messages.insert(0, ChatMessage("system", request.instructions))
    tools = tuple(
        Tool(tool.name, tool.description or "", bytes(tool.parameters) if present(tool.parameters) else b"{}")
        for tool in request.tools or ()
    )
    effort = request.reasoning.effort if request.reasoning is not None else None
    kwargs, thinking = template_variables(request.chat_template_kwargs, effort, defaults)
    return ChatPrompt(
        messages=tuple(messages),
        tools=tools,
        tool_choice=_tool_choice(request.tool_choice, tools),
        parallel_tool_calls=pick(request.parallel_tool_calls, True),
        template_kwargs_json=kwargs,
        reasoning_format=reasoning_format(pick(request.reasoning_format, defaults.reasoning_format)),
        reasoning_budget=pick(request.reasoning_budget_tokens, defaults.reasoning_budget),
        enable_thinking=thinking,
        chat_template=defaults.chat_template,
    )


def _tool_choice(choice: str | NamedFunction | None, tools: tuple[Tool, ...]) -> str:
    if choice is None:
        return "auto"
    if isinstance(choice, NamedFunction):
        if all(tool.name != choice.name for tool in tools):
            raise invalid(f"tool_choice: there is no tool named '{choice.name}'", "tool_choice.name")
        return f"name:{choice.name}"
    if choice not in ("auto", "none", "required"):
        raise invalid(f"tool_choice: expected auto, none, required or a function, got '{choice}'", "tool_choice")
    if choice == "required" and not tools:
        raise invalid("tool_choice: 'required' needs tools", "tool_choice")
    return choice


def text_constraint(request: ResponsesRequest) -> Constraint | None:
    """What `text.format` demands of the output."""
    wanted = request.text.format if request.text is not None else None
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return JsonSchema(b"{}")
    if wanted.type == "json_schema":
        if not present(wanted.schema):
            raise invalid("text.format.schema is required", "text.format.schema")
        return schema_constraint(bytes(wanted.schema), "text.format.schema")
    raise invalid(
        f"text.format.type: expected text, json_object or json_schema, got '{wanted.type}'", "text.format.type"
    )

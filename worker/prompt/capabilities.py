"""What a chat template can express, found by rendering small conversations with it.

llama.cpp asks the same questions of its own interpreter by watching which values a template touches. Here each probe
carries a word that either appears in the rendered text or does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import jinja2

from worker.prompt.limits import RenderLimitExceeded

Render = Callable[[dict[str, Any]], str]
"""Renders template variables to text; raises jinja2.TemplateError or another error of the template's own making."""

ReasoningForm = Literal["reasoning_content", "thinking", "chunks"]
"""Where a message's reasoning goes: a field of one of these names, or a content part of type `thinking`."""

_WORD = "Quetzalcoatl"
_TOOL = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "Tool description",
        "parameters": {
            "type": "object",
            "properties": {"arg": {"type": "string", "description": "Arg description"}},
            "required": ["arg"],
        },
    },
}
_USER = {"role": "user", "content": "User message"}


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """One answer per question: kinds of content, system role, tools, shape of arguments, thinking."""

    string_content: bool = True
    typed_content: bool = False
    system_role: bool = True
    tools: bool = True
    tool_calls: bool = True
    parallel_tool_calls: bool = True
    object_arguments: bool = False
    preserved_reasoning: bool = False
    reasoning_effort: bool = False
    thinking_switch: bool = False
    reasoning_form: ReasoningForm = "reasoning_content"


def probe_capabilities(render: Render) -> TemplateCapabilities:
    """Ask a template what it can express. A probe that fails counts as "no evidence".

    Raises RenderLimitExceeded for a template that cannot even render these small conversations within its bounds.
    """
    string_content, typed_content = _content_kinds(render)
    tool_calls = _tool_calls(render)
    return TemplateCapabilities(
        string_content=string_content,
        typed_content=typed_content,
        system_role=_renders_system(render, typed_content and not string_content),
        tools=tool_calls.tools,
        tool_calls=tool_calls.calls,
        parallel_tool_calls=tool_calls.parallel,
        object_arguments=tool_calls.object_arguments,
        preserved_reasoning=_preserves_reasoning(render),
        reasoning_effort=_changes(render, {"reasoning_effort": "low"}, {"reasoning_effort": "high"}),
        thinking_switch=_changes(render, {"enable_thinking": True}, {"enable_thinking": False}),
        reasoning_form=_reasoning_form(render),
    )


def _try(render: Render, messages: list[dict[str, Any]], **variables: Any) -> str | None:
    try:
        return render({"messages": messages, "add_generation_prompt": True, **variables})
    except RenderLimitExceeded:
        raise
    except (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, RecursionError):
        return None


def _content_kinds(render: Render) -> tuple[bool, bool]:
    as_text = _try(render, [{"role": "user", "content": _WORD}])
    as_parts = _try(render, [{"role": "user", "content": [{"type": "text", "text": _WORD}]}])
    typed = as_parts is not None and _WORD in as_parts and not _shows_structure(as_parts)
    string = as_text is not None and _WORD in as_text
    return string or not typed, typed


def _shows_structure(text: str) -> bool:
    """Whether a list of parts was printed as Python or JSON writes it, instead of being read."""
    return any(mark in text for mark in ("'type'", '"type"', "'text'", '"text"'))


def _renders_system(render: Render, parts_only: bool) -> bool:
    content: Any = [{"type": "text", "text": _WORD}] if parts_only else _WORD
    text = _try(render, [{"role": "system", "content": content}, _USER])
    return text is not None and _WORD in text


@dataclass(frozen=True, slots=True)
class _ToolAnswers:
    tools: bool
    calls: bool
    parallel: bool
    object_arguments: bool


def _tool_calls(render: Render) -> _ToolAnswers:
    with_object = _try(render, _call_history({"arg": _WORD}), tools=[_TOOL])
    takes_objects = with_object is not None and _WORD in with_object and f"'arg': '{_WORD}'" not in with_object
    text = with_object if takes_objects else _try(render, _call_history('{"arg": "' + _WORD + '"}'), tools=[_TOOL])
    if text is None:
        return _ToolAnswers(tools=False, calls=False, parallel=False, object_arguments=False)
    without = _try(render, _call_history({"arg": _WORD} if takes_objects else '{"arg": "' + _WORD + '"}'))
    arguments: Any = {"arg": "second"} if takes_objects else '{"arg": "second"}'
    both = _try(render, _call_history(arguments, {"arg": _WORD} if takes_objects else '{"arg": "' + _WORD + '"}'))
    return _ToolAnswers(
        tools="Tool description" in text or without != text,
        calls=_WORD in text,
        parallel=both is not None and _WORD in both and "second" in both,
        object_arguments=takes_objects,
    )


def _call_history(*arguments: Any) -> list[dict[str, Any]]:
    calls = [
        {"id": f"call0000{i}", "type": "function", "function": {"name": "probe_tool", "arguments": value}}
        for i, value in enumerate(arguments, 1)
    ]
    answers = [{"role": "tool", "content": "Tool response", "tool_call_id": call["id"]} for call in calls]
    return [_USER, {"role": "assistant", "content": "", "tool_calls": calls}, *answers, _reply(), _USER]


def _reply(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "Assistant message", **fields}


def _preserves_reasoning(render: Render) -> bool:
    history = [_USER, _reply(reasoning_content=_WORD), _USER, _reply(reasoning_content="thoughts"), _USER]
    text = _try(render, history, enable_thinking=True, **preserve_reasoning(True))
    return text is not None and _WORD in text


def _reasoning_form(render: Render) -> ReasoningForm:
    calls = _call_history({"arg": "value"})
    forms: tuple[tuple[ReasoningForm, dict[str, Any]], ...] = (
        ("reasoning_content", {"reasoning_content": _WORD}),
        ("thinking", {"thinking": _WORD}),
        ("chunks", {"content": [{"type": "thinking", "thinking": _WORD}, {"type": "text", "text": "Answer"}]}),
    )
    for form, fields in forms:
        for history in ([_USER, _reply(**fields)], [calls[0], calls[1] | fields, *calls[2:3]]):
            text = _try(render, history, tools=[_TOOL], enable_thinking=True, **preserve_reasoning(True))
            if text is not None and _WORD in text and not _shows_structure(text.partition(_WORD)[0][-40:]):
                return form
    return "reasoning_content"


def preserve_reasoning(enabled: bool) -> dict[str, bool]:
    """The names by which templates are told to keep, or drop, the reasoning of earlier turns."""
    return {
        "preserve_thinking": enabled,
        "clear_thinking": not enabled,
        "truncate_history_thinking": not enabled,
        "drop_thinking": not enabled,
    }


def _changes(render: Render, one: dict[str, Any], other: dict[str, Any]) -> bool:
    first, second = _try(render, [_USER], **one), _try(render, [_USER], **other)
    return first is not None and second is not None and first != second

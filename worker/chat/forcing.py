"""Output that a model must write: forced calls and schema answers as grammars in llguidance's Lark dialect.

What a grammar allows here, the family's parser reads. Special tokens that mark calls count as their text.
"""

from __future__ import annotations

from collections.abc import Sequence

from protocol.chat import Tool
from worker.chat.call_grammar import term
from worker.chat.call_shapes import ANSWERS, SHAPES
from worker.chat.syntax import OutputSyntax

_MAX_PARALLEL = 16


def forced_calls(syntax: OutputSyntax, tools: Sequence[Tool]) -> str | None:
    """A grammar whose texts are calls of `tools` and nothing else; None for a family without calls.

    There is more than one call only if the request allows it. Reasoning may come first, unless the prompt has opened it
    already: then the grammar begins behind its end. Raises ConstraintError for a tool whose schema is none.
    """
    lead, lead_rules = _reasoning_first(syntax)
    calls = _calls(syntax, tools, lead)
    return None if calls is None else "\n".join([calls, *lead_rules])


def optional_calls(syntax: OutputSyntax, tools: Sequence[Tool]) -> str | None:
    """As `forced_calls`, for what stands behind the text in which the model has chosen to call."""
    return _calls(syntax, tools, "")


def _calls(syntax: OutputSyntax, tools: Sequence[Tool], lead: str) -> str | None:
    """The rules of calls behind `lead`."""
    shape = SHAPES.get(syntax.format)
    if shape is None or not tools:
        return None
    rules: list[str] = []
    for position, tool in enumerate(tools):
        rules += shape.call(position, tool)
    rules.append("call: " + " | ".join(f"call_{position}" for position in range(len(tools))))
    calls = "call"
    if syntax.parallel_tool_calls and shape.separator is not None:
        calls = f"call ({shape.separator} call){{0,{_MAX_PARALLEL - 1}}}"
    return "\n".join([f"start: {lead} {shape.begin} {calls} {shape.end}", *rules])


def schema_answer(syntax: OutputSyntax, schema_json: str) -> str:
    """A grammar whose texts are answers with one JSON value of a schema (JSON text) as their content."""
    begin, end = ANSWERS.get(syntax.format, ("", ""))
    lead, lead_rules = _reasoning_first(syntax)
    start = f"start: {lead} {term('' if syntax.continues else begin)} answer {term(end)}"
    return "\n".join([start, f"answer: %json {schema_json}", *lead_rules])


def _reasoning_first(syntax: OutputSyntax) -> tuple[str, list[str]]:
    """A term for the reasoning that an answer may begin with, and its rules."""
    tags = syntax.reasoning
    if tags is None or syntax.reasoning_open or syntax.continues or tags.start in syntax.prefix:
        return "", []
    rules = [
        f"thinking: {term(tags.start)} thoughts SPACES?",
        f"thoughts[suffix={term(tags.end)}]: /(?s:.*)/",
        r"SPACES: /[ \n]{1,3}/",
    ]
    return "thinking?", rules

"""Which constraint a request's output is under: a schema, forced tool calls, or none."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from protocol.chat import Tool
from protocol.sampling import Constraint, Grammar
from worker.call_gate import CallGate, Openings, Thoughts
from worker.chat.call_shapes import SHAPES
from worker.chat.forcing import forced_calls, optional_calls, schema_answer
from worker.chat.syntax import OutputSyntax
from worker.constraint import ConstraintCompiler, Matcher, ReasoningGate
from worker.prompt.errors import PromptError
from worker.schema_rules import ConstraintError, check_grammar, guided, parse_schema

OutputMatcher = Matcher | ReasoningGate | CallGate

logger = logging.getLogger(__name__)

NAMED = "name:"
"""Comes before the name of the one tool that must be called, in `ChatPrompt.tool_choice`."""


def output_constraint(
    compiler: ConstraintCompiler, constraint: Constraint | None, syntax: OutputSyntax | None, tool_choice: str = "auto"
) -> Callable[[], OutputMatcher] | None:
    """What makes a fresh matcher for each choice of a request; None if its output is free, or under a GBNF grammar.

    `syntax` is None for a prompt that is no chat. Raises PromptError for what cannot be constrained: nothing is ever
    generated without the constraint that was asked for.
    """
    if constraint is None and tool_choice == "auto":
        return None if syntax is None or not syntax.tools else _optional_calls(compiler, syntax)
    calls = _forced_tools(syntax, tool_choice)
    if calls and constraint is not None:
        raise PromptError("a schema or grammar cannot be combined with forced tool calls", "tool_choice")
    if calls and syntax is not None:
        return _gated(compiler, syntax, _calls_grammar(syntax, calls), "tools")
    if isinstance(constraint, Grammar):
        _checked(lambda: check_grammar(constraint.gbnf), "grammar")
        return None
    if constraint is None:
        return None
    schema_json = constraint.schema_json
    if syntax is None:
        _checked(lambda: compiler.json_schema(schema_json), "json_schema")
        return lambda: compiler.json_schema(schema_json)
    _checked(lambda: compiler.json_schema(schema_json), "response_format")
    schema = guided(parse_schema(schema_json))
    return _gated(compiler, syntax, schema_answer(syntax, json.dumps(schema, ensure_ascii=False)), "response_format")


def _forced_tools(syntax: OutputSyntax | None, tool_choice: str) -> tuple[Tool, ...]:
    """The tools of which one must be called; none if the model may choose."""
    if tool_choice in {"auto", "none"} or syntax is None:
        return ()
    if not syntax.tools:
        raise PromptError("tool_choice demands a call, but there are no tools", "tool_choice")
    if tool_choice == "required":
        return syntax.tools
    tool = syntax.tool(tool_choice.removeprefix(NAMED)) if tool_choice.startswith(NAMED) else None
    if tool is None:
        raise PromptError(f"tool_choice names no tool of this request: {tool_choice!r}", "tool_choice")
    return (tool,)


def _optional_calls(compiler: ConstraintCompiler, syntax: OutputSyntax) -> Callable[[], OutputMatcher] | None:
    """Bind calls once they are opened; None for a format without calls, or tools that no grammar can be made of."""
    shape = SHAPES.get(syntax.format)
    try:
        grammar = optional_calls(syntax, syntax.tools)
        if shape is None or grammar is None:
            return None
        compiler.lark(grammar)
    except ConstraintError as error:
        logger.info("calls are not constrained: %s", error)
        return None
    texts = tuple(text.encode() for text in shape.openings(syntax.tools))
    openings = Openings(texts, shape.opens_at_start)
    thoughts = None
    if syntax.reasoning is not None and (syntax.reasoning_open or not syntax.continues):
        ends = tuple(end.encode() for end in syntax.reasoning.ends)
        thoughts = Thoughts(syntax.reasoning.start.encode(), ends, syntax.reasoning_open)
    return lambda: CallGate(lambda: compiler.lark(grammar), compiler.pieces, openings, thoughts)


def _calls_grammar(syntax: OutputSyntax, tools: tuple[Tool, ...]) -> str:
    try:
        grammar = forced_calls(syntax, tools)
    except ConstraintError as error:
        raise PromptError(str(error), "tools") from error
    if grammar is None:
        raise PromptError(f"calls cannot be forced in this model's format ({syntax.format})", "tool_choice")
    return grammar


def _gated(compiler: ConstraintCompiler, syntax: OutputSyntax, grammar: str, param: str) -> Callable[[], OutputMatcher]:
    """Matchers that wait for the end of reasoning which the prompt has opened."""
    _checked(lambda: compiler.lark(grammar), param)

    def make() -> OutputMatcher:
        matcher = compiler.lark(grammar)
        if syntax.reasoning is None or not syntax.reasoning_open:
            return matcher
        ends = [end.encode() for end in syntax.reasoning.ends]
        return ReasoningGate(matcher, compiler.pieces, ends, is_open=True)

    return make


def _checked(attempt: Callable[[], object], param: str) -> None:
    try:
        attempt()
    except ConstraintError as error:
        raise PromptError(str(error), param) from error

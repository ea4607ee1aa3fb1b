"""Which constraint a request gets, and what is refused."""

from __future__ import annotations

import pytest

from protocol.sampling import Grammar, JsonSchema
from tests.worker.chat.answers import tool
from tests.worker.constraint.byte_vocabulary import accepts, allowed, byte_compiler
from worker.chat.syntax import OutputSyntax, ReasoningTags
from worker.constraint import ConstraintCompiler, ReasoningGate
from worker.output_constraint import output_constraint
from worker.prompt.errors import PromptError

THINK = ReasoningTags("<think>", ("</think>",))
TOOLS = (
    tool("get_time", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
    tool("noop"),
)
SCHEMA = JsonSchema(b'{"type": "integer"}')


@pytest.fixture(scope="module")
def compiler() -> ConstraintCompiler:
    return byte_compiler()


def test_free_output_has_none(compiler: ConstraintCompiler) -> None:
    syntax = OutputSyntax("hermes", tools=TOOLS)
    assert output_constraint(compiler, None, OutputSyntax("hermes"), "auto") is None
    assert output_constraint(compiler, None, syntax, "none") is None
    assert output_constraint(compiler, None, None) is None


def test_a_schema_binds_plain_prompts_and_chats(compiler: ConstraintCompiler) -> None:
    for syntax in (None, OutputSyntax("content")):
        make = output_constraint(compiler, SCHEMA, syntax)
        assert make is not None
        assert accepts(make(), "42")
        assert not accepts(make(), "x")


def test_a_required_call_may_be_of_any_tool_and_a_named_one_of_its_own(compiler: ConstraintCompiler) -> None:
    syntax = OutputSyntax("hermes", tools=TOOLS)
    time = '<tool_call>\n{"name": "get_time", "arguments": {"city": "Rome"}}\n</tool_call>'
    noop = '<tool_call>\n{"name": "noop", "arguments": {}}\n</tool_call>'
    required = output_constraint(compiler, None, syntax, "required")
    named = output_constraint(compiler, None, syntax, "name:noop")
    assert required is not None
    assert named is not None
    assert accepts(required(), time)
    assert accepts(required(), noop)
    assert accepts(named(), noop)
    assert not accepts(named(), time)
    assert not accepts(required(), "Hello")


def test_open_reasoning_is_free_and_what_follows_is_not(compiler: ConstraintCompiler) -> None:
    make = output_constraint(compiler, SCHEMA, OutputSyntax("hermes", THINK, reasoning_open=True))
    assert make is not None
    matcher = make()
    assert matcher.mask() is None
    for byte in b"Anything {goes} here.</think":
        matcher.accept(byte)
        assert matcher.mask() is None
    matcher.accept(ord(">"))
    assert ord("x") not in allowed(matcher)
    assert accepts(matcher, "42")


def test_a_gate_may_be_opened_by_the_first_token(compiler: ConstraintCompiler) -> None:
    inner = compiler.json_schema(SCHEMA.schema_json)
    gate = ReasoningGate(inner, compiler.pieces, [b"!"], is_open=False, start_token=ord("T"))
    assert ord("T") in allowed(gate)
    assert ord("4") in allowed(gate)
    gate.accept(ord("T"))
    assert gate.mask() is None
    assert not gate.is_accepting()
    gate.accept(ord("!"))
    assert accepts(gate, "42")
    assert gate.is_accepting()


@pytest.mark.parametrize(
    ("constraint", "syntax", "choice", "param"),
    [
        (JsonSchema(b"nope"), None, "auto", "json_schema"),
        (JsonSchema(b'{"type": "array", "uniqueItems": true}'), OutputSyntax("content"), "auto", "response_format"),
        (JsonSchema(b"[]"), OutputSyntax("content"), "auto", "response_format"),
        (Grammar("start ::= x"), None, "auto", "grammar"),
        (SCHEMA, OutputSyntax("hermes", tools=TOOLS), "required", "tool_choice"),
        (None, OutputSyntax("hermes"), "required", "tool_choice"),
        (None, OutputSyntax("hermes", tools=TOOLS), "name:unknown", "tool_choice"),
        (None, OutputSyntax("hermes", tools=TOOLS), "sometimes", "tool_choice"),
        (None, OutputSyntax("content", tools=TOOLS), "required", "tool_choice"),
        (None, OutputSyntax("hermes", tools=(tool("f", {"properties": {"a": {"not": {}}}}),)), "required", "tools"),
    ],
)
def test_what_cannot_be_constrained_is_refused(
    compiler: ConstraintCompiler,
    constraint: JsonSchema | Grammar | None,
    syntax: OutputSyntax | None,
    choice: str,
    param: str,
) -> None:
    with pytest.raises(PromptError) as refused:
        output_constraint(compiler, constraint, syntax, choice)
    assert refused.value.error.param == param


def test_a_gbnf_grammar_is_left_to_the_engine(compiler: ConstraintCompiler) -> None:
    assert output_constraint(compiler, Grammar('root ::= "a"'), None) is None

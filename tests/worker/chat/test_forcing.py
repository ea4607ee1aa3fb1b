"""Whatever a grammar of forced calls allows, the family's parser reads as calls that fit the tools."""

from __future__ import annotations

import json
import re
import time

import jsonschema
import pytest

from tests.worker.chat.answers import read, tool
from tests.worker.constraint.byte_vocabulary import accepts, byte_compiler, draw
from worker.chat.call_shapes import SHAPES
from worker.chat.forcing import forced_calls, schema_answer
from worker.chat.formats import FORMATS
from worker.chat.syntax import OutputSyntax, ReasoningTags
from worker.schema_rules import ConstraintError

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 0, "maximum": 99},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 2},
        "place": {"$ref": "#/$defs/place"},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]}},
}
SCHEMAS = {"get_weather": WEATHER, "noop": {"type": "object", "additionalProperties": False}}
TOOLS = tuple(tool(name, schema) for name, schema in SCHEMAS.items())
COMPILER = byte_compiler()
PREFIXES = {"functionary-v3.2": ">>>"}


def endings(grammar: str) -> list[bytes]:
    found = re.findall(r'suffix=("(?:\\.|[^"\\])*")', grammar)
    return [b'"', b"]", b"}", *(str(json.loads(text)).encode() for text in found)]


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: str(entry.name))
def test_forced_calls_are_calls(entry: object) -> None:
    name, tags = entry.name, entry.reasoning  # type: ignore[attr-defined]
    if name not in SHAPES:
        assert name == "content"
        return
    for seed in range(6):
        syntax = OutputSyntax(
            name, tags if seed % 2 else None, tools=TOOLS, parallel_tool_calls=seed > 1, prefix=PREFIXES.get(name, "")
        )
        grammar = forced_calls(syntax, TOOLS)
        assert grammar is not None
        text = draw(COMPILER.lark(grammar), seed, endings(grammar))
        assert text is not None, f"no end: {grammar}"
        answer = read(syntax, tuple(text))
        assert answer.calls, text
        assert answer.content.strip() == "", text
        assert len(answer.calls) == 1 or syntax.parallel_tool_calls, text
        for call in answer.calls:
            jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])


def test_a_named_tool_is_the_only_one() -> None:
    grammar = forced_calls(OutputSyntax("hermes", tools=TOOLS), TOOLS[1:])
    assert grammar is not None
    assert accepts(COMPILER.lark(grammar), '<tool_call>\n{"name": "noop", "arguments": {}}\n</tool_call>')
    assert not accepts(COMPILER.lark(grammar), '<tool_call>\n{"name": "get_weather", "arguments": {"city": "a"')


def test_required_arguments_are_required() -> None:
    grammar = forced_calls(OutputSyntax("hermes", tools=TOOLS), TOOLS)
    assert grammar is not None
    start = '<tool_call>\n{"name": "get_weather", "arguments": '
    assert accepts(COMPILER.lark(grammar), start + '{"city": "Paris", "days": 3}}\n</tool_call>')
    assert not accepts(COMPILER.lark(grammar), start + '{"city": "Paris"}}\n</tool_call>')


def test_a_format_without_calls_has_no_grammar() -> None:
    assert forced_calls(OutputSyntax("content", tools=TOOLS), TOOLS) is None


def test_reasoning_may_come_before_a_schema_answer() -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
    think = ReasoningTags("<think>", ("</think>",))
    grammar = schema_answer(OutputSyntax("hermes", think), schema)
    assert accepts(COMPILER.lark(grammar), '<think>Well.\n</think>\n\n{"a": 1}')
    assert accepts(COMPILER.lark(grammar), '{"a": 1}')
    assert not accepts(COMPILER.lark(grammar), '<think>Well.{"a": 1}')
    closed = schema_answer(OutputSyntax("hermes", think, prefix="<think>\n\n</think>\n\n"), schema)
    assert not accepts(COMPILER.lark(closed), '<think>Well.\n</think>\n\n{"a": 1}')


def test_harmony_answers_on_its_final_channel() -> None:
    entry = next(entry for entry in FORMATS if entry.name == "gpt-oss")
    syntax = OutputSyntax("gpt-oss", entry.reasoning, prefix="<|start|>assistant")
    grammar = schema_answer(syntax, '{"type": "integer"}')
    text = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>7"
    assert accepts(COMPILER.lark(grammar), text)
    answer = read(syntax, tuple(text))
    assert (answer.reasoning, answer.content) == ("Hm.", "7")


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder"])
@pytest.mark.parametrize("schema", [{"properties": [1]}, {"properties": {"a": {}}, "required": 5}])
def test_a_schema_that_is_none_is_refused(name: str, schema: dict[str, object]) -> None:
    strange = (tool("f", schema),)
    with pytest.raises(ConstraintError, match="'f'"):
        forced_calls(OutputSyntax(name, tools=strange), strange)


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder"])
def test_a_hundred_tools_are_compiled_soon(name: str) -> None:
    properties = {f"argument_{i}": {"type": "string", "description": "x" * 50} for i in range(12)}
    tools = tuple(tool(f"tool_{i}", {"type": "object", "properties": properties}) for i in range(100))
    started = time.process_time()
    grammar = forced_calls(OutputSyntax(name, tools=tools), tools)
    assert grammar is not None
    COMPILER.lark(grammar).mask()
    assert time.process_time() - started < 5


def test_odd_names_are_no_grammar() -> None:
    odd = tool('a" | /.*/ "', {"type": "object", "properties": {'k" "': {"type": "integer"}}, "required": ['k" "']})
    for name in ("hermes", "minimax"):
        syntax = OutputSyntax(name, tools=(odd,))
        grammar = forced_calls(syntax, (odd,))
        assert grammar is not None
        assert not accepts(COMPILER.lark(grammar), "anything")

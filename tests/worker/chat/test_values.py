"""Argument values that come as plain text."""

from __future__ import annotations

import pytest

from tests.worker.chat.answers import read, tool
from worker.chat.syntax import OutputSyntax
from worker.chat.values import ParameterTypes

TYPES = ParameterTypes(
    tool(
        "f",
        {
            "type": "object",
            "properties": {
                "text": {"type": "string"},
                "number": {"type": "number"},
                "flag": {"type": "boolean"},
                "maybe": {"type": ["string", "null"]},
                "union": {"anyOf": [{"type": "string"}, {"type": "object"}]},
                "level": {"enum": ["low", 2]},
                "reference": {"$ref": "#/$defs/word"},
                "loop": {"$ref": "#/$defs/loop"},
            },
            "$defs": {"word": {"type": "string"}, "loop": {"$ref": "#/$defs/loop"}},
        },
    )
)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("text", "42", '"42"'),
        ("text", 'say "hi"\n', '"say \\"hi\\"\\n"'),
        ("number", " 4.5 ", "4.5"),
        ("number", "many", '"many"'),
        ("flag", "True", "true"),
        ("flag", "false", "false"),
        ("maybe", "null", "null"),
        ("maybe", "None", "null"),
        ("maybe", "42", '"42"'),
        ("union", '{"a": 1}', '{"a": 1}'),
        ("union", "{broken", '"{broken"'),
        ("level", "low", '"low"'),
        ("level", "2", "2"),
        ("unknown", "[1, 2]", "[1, 2]"),
        ("unknown", "plain", '"plain"'),
        ("loop", "1", "1"),
    ],
)
def test_a_value_becomes_what_its_schema_allows(name: str, text: str, expected: str) -> None:
    assert TYPES.as_json(name, text) == expected


def test_only_plain_strings_may_stream() -> None:
    streaming = {name for name in ("text", "maybe", "union", "reference", "level", "unknown") if TYPES.is_text(name)}
    assert streaming == {"text", "reference"}


def test_a_schema_that_is_none_says_nothing() -> None:
    assert ParameterTypes(tool("f")).types("x") == set()


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": [1, 2]},
        {"properties": {"x": 5}},
        {"properties": {"x": True}},
        {"properties": {"x": {"anyOf": 5, "oneOf": {"a": 1}, "allOf": None, "enum": "abc"}}},
        {"properties": {"x": {"type": {"a": 1}, "$ref": 7}}},
        {"properties": {"x": {"type": [1, None]}}},
        {"properties": {"x": {"$ref": "#/properties/x/y/z"}}},
    ],
)
def test_a_strange_schema_harms_nobody(schema: dict[str, object]) -> None:
    strange = tool("f", schema)
    assert ParameterTypes(strange).as_json("x", "plain") == '"plain"'
    calls = {
        "qwen3-coder": "<tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</function>\n</tool_call>",
        "minimax-m3": ']<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name="f">]<]minimax[>[<x>1]<]minimax[>[</x>'
        "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
    }
    for name, text in calls.items():
        answer = read(OutputSyntax(name, tools=(strange,)), tuple(text))
        assert [call.name for call in answer.calls] == ["f"]

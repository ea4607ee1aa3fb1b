"""Text that the masks of a schema allow is JSON that the schema allows."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import jsonschema
import pytest

from tests.worker.constraint.byte_vocabulary import accepts, byte_compiler, draw
from worker.constraint import ConstraintCompiler
from worker.schema_rules import ConstraintError

FAMILIES: dict[str, Any] = {
    "object": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
    },
    "optional": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "number"}, "c": {"type": "boolean"}},
        "additionalProperties": False,
    },
    "nested": {
        "type": "object",
        "properties": {"in": {"type": "object", "properties": {"deep": {"type": "null"}}, "required": ["deep"]}},
        "required": ["in"],
    },
    "enum": {"enum": ["red", "green", 3, None, True]},
    "const": {"type": "object", "properties": {"kind": {"const": "fixed"}}, "required": ["kind"]},
    "anyOf": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"x": {"type": "integer"}}}]},
    "oneOf": {
        "oneOf": [
            {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]},
            {"type": "object", "properties": {"kind": {"const": "b"}}, "required": ["kind"]},
        ]
    },
    "allOf": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
            {"type": "object", "properties": {"b": {"type": "string"}}, "required": ["b"]},
        ]
    },
    "reference": {
        "$ref": "#/$defs/pair",
        "$defs": {"pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}},
    },
    "recursion": {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {
                "type": "object",
                "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}},
                "additionalProperties": False,
            }
        },
    },
    "pattern": {"type": "string", "pattern": "^[a-f]{2}-[0-9]+$"},
    "format": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "date-time"},
    "range": {"type": "integer", "minimum": -5, "exclusiveMaximum": 120},
    "number": {"type": "number", "minimum": 0.5, "maximum": 1.5},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 700},
    "length": {"type": "string", "minLength": 2, "maxLength": 5},
    "items": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4},
    "additional": {"type": "object", "additionalProperties": {"type": "integer"}},
    "keys": {"type": "object", "patternProperties": {"^x_": {"type": "integer"}}, "additionalProperties": False},
    "nullable": {"type": ["integer", "null"]},
}


@pytest.fixture(scope="module")
def compiler() -> ConstraintCompiler:
    return byte_compiler()


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_what_a_mask_allows_validates(compiler: ConstraintCompiler, name: str) -> None:
    schema = FAMILIES[name]
    ended = 0
    for seed in range(8):
        text = draw(compiler.json_schema(json.dumps(schema).encode()), seed)
        if text is not None:
            ended += 1
            jsonschema.validate(json.loads(text), schema)
    assert ended >= 4


def test_what_does_not_validate_is_not_allowed(compiler: ConstraintCompiler) -> None:
    schema = json.dumps(FAMILIES["object"]).encode()
    assert accepts(compiler.json_schema(schema), '{"name": "x", "age": 3}')
    assert accepts(compiler.json_schema(schema), '{\n  "name": "x",\n  "age": 3\n}')
    assert not accepts(compiler.json_schema(schema), '{"name": "x"}')
    assert not accepts(compiler.json_schema(schema), '{"name": "x", "age": "3"}')
    assert not accepts(compiler.json_schema(schema), '{"name": "x", "age": 3')


def test_an_empty_schema_is_any_object(compiler: ConstraintCompiler) -> None:
    assert accepts(compiler.json_schema(b"{}"), '{"a": [1, {"b": null}]}')
    assert not accepts(compiler.json_schema(b"{}"), "[1]")
    assert accepts(compiler.json_schema(b"true"), "[1]")


def test_white_space_is_bounded(compiler: ConstraintCompiler) -> None:
    assert not accepts(compiler.json_schema(b"{}"), "{" + "\n" * 50 + "}")
    assert not accepts(compiler.json_schema(b"{}"), "{" + " " * 50 + "}")


@pytest.mark.parametrize(
    ("schema", "allowed", "refused"),
    [
        ({"type": "integer"}, ["0", "-7", "123456789012345"], ["1" * 17]),
        ({"type": ["integer", "null"]}, ["null", "5"], ["1" * 17]),
        ({"type": "integer", "minimum": 10**16}, [str(10**16 + 1)], ["5"]),
        ({"type": "integer", "exclusiveMaximum": -(10**16)}, [str(-(10**16) - 1)], ["5"]),
        ({"properties": {"minimum": {"type": "integer"}}, "required": ["minimum"]}, ['{"minimum": 3}'], ["{}"]),
        ({"enum": [{"type": "integer"}]}, ['{"type": "integer"}'], ['{"type": "integer", "minimum": 0}']),
    ],
)
def test_integers_are_bounded(
    compiler: ConstraintCompiler, schema: dict[str, Any], allowed: list[str], refused: list[str]
) -> None:
    data = json.dumps(schema).encode()
    assert all(accepts(compiler.json_schema(data), text) for text in allowed)
    assert not any(accepts(compiler.json_schema(data), text) for text in refused)


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (b"not json", "not valid JSON"),
        (b"[1]", "must be an object"),
        (b"false", "nothing satisfies"),
        (b'{"type": "strin"}', "strin"),
        (b'{"type": "array", "uniqueItems": true}', "uniqueItems"),
        (b'{"not": {"type": "string"}}', "not"),
        (b'{"$ref": "https://example.org/schema"}', "example.org"),
        (b'{"type": "string", "pattern": "(?=x)y"}', "regex"),
        (b'{"type": "string", "format": "no-such-format"}', "no-such-format"),
        (b'{"type": "integer", "minimum": 5, "maximum": 3}', "minimum"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "nested deeper"),
        (b'{"title": "' + b"x" * 300_000 + b'"}', "larger than"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused(compiler: ConstraintCompiler, schema: bytes, reason: str) -> None:
    with pytest.raises(ConstraintError, match=reason):
        compiler.json_schema(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}, "maxItems": 100_000},
        {"type": "string", "maxLength": 1_000_000},
        {"type": "string", "pattern": "^((a{1,100}){1,100}){1,100}$"},
        {"type": "string", "pattern": "^(a+)+b$"},
        {"type": "string", "pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"},
        {"enum": [f"value {i}" for i in range(10_000)]},
        {"type": "object", "properties": {f"p{i}": {"enum": list(range(40))} for i in range(400)}},
        {"anyOf": [{"type": "object", "properties": {f"k{i}": {"type": "string"}}} for i in range(300)]},
    ],
    ids=["items", "length", "powers", "backtracking", "ambiguous", "enum", "properties", "branches"],
)
def test_a_schema_that_explodes_is_bounded(compiler: ConstraintCompiler, schema: dict[str, Any]) -> None:
    """Either it compiles, and masks keep coming, or it is refused; it never takes long."""
    started = time.process_time()
    with contextlib.suppress(ConstraintError):
        matcher = compiler.json_schema(json.dumps(schema).encode())
        for byte in b'"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa':
            mask = matcher.mask()
            assert mask is not None
            if not (int(mask[byte >> 5]) >> (byte & 31)) & 1:
                break
            matcher.accept(byte)
    assert time.process_time() - started < 5


def test_matchers_of_one_schema_are_independent(compiler: ConstraintCompiler) -> None:
    one, other = compiler.json_schema(b"{}"), compiler.json_schema(b"{}")
    for byte in b'{"a":':
        one.accept(byte)
    assert accepts(other, "{}")
    assert not one.is_accepting()


def test_a_token_that_was_not_allowed_is_an_error(compiler: ConstraintCompiler) -> None:
    matcher = compiler.json_schema(b"{}")
    with pytest.raises(ConstraintError):
        matcher.accept(ord("x"))


def test_the_end_of_a_value_stops_it(compiler: ConstraintCompiler) -> None:
    matcher = compiler.json_schema(b'{"const": "ab"}')
    for byte in b'"ab"':
        assert not matcher.is_stopped()
        matcher.accept(byte)
    assert matcher.is_accepting()
    assert matcher.is_stopped()

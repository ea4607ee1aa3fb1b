"""Which objects of a schema are closed, and that closing never makes a schema unsatisfiable or looser."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.worker.constraint.byte_vocabulary import accepts, byte_compiler, draw
from worker.schema_closing import closed

COMPILER = byte_compiler()
A = {"type": "object", "properties": {"a": {"type": "integer"}}}
B = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
CLOSED = {"additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (A, {**A, **CLOSED}),
        ({"type": "array", "items": A}, {"type": "array", "items": {**A, **CLOSED}}),
        ({"anyOf": [A, B]}, {"anyOf": [{**A, **CLOSED}, {**B, **CLOSED}]}),
        ({"$ref": "#/$defs/a", "$defs": {"a": A}}, {"$ref": "#/$defs/a", "$defs": {"a": {**A, **CLOSED}}}),
        (
            {"type": "object", "properties": {"properties": A, "required": B, "x": A}},
            {
                "type": "object",
                "properties": {"properties": {**A, **CLOSED}, "required": {**B, **CLOSED}, "x": {**A, **CLOSED}},
                **CLOSED,
            },
        ),
    ],
)
def test_objects_that_list_their_members_are_closed(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    before = json.dumps(schema)
    assert closed(schema) == expected
    assert json.dumps(schema) == before


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [A, B]},
        {**A, "allOf": [B]},
        {"required": ["b"], "allOf": [A, {"title": "the other", **B, "required": []}]},
        {"allOf": [{"$ref": "#/$defs/a"}, B], "$defs": {"a": A}},
    ],
)
def test_objects_that_hold_together_become_one(schema: dict[str, Any]) -> None:
    made = closed(schema)
    assert "allOf" not in made
    assert (made["required"], made["additionalProperties"]) == (["b"], False)
    assert made["properties"] == {"a": {"type": "integer"}, "b": {"type": "integer"}}


def test_a_member_of_two_parts_satisfies_both() -> None:
    low, high = ({"properties": {"n": {"type": "integer", key: 5}}} for key in ("minimum", "maximum"))
    schema = json.dumps({"allOf": [{**low, "required": ["n"]}, high]}).encode()
    assert accepts(COMPILER.json_schema(schema), '{"n": 5}')
    assert not accepts(COMPILER.json_schema(schema), '{"n": 4}')
    assert not accepts(COMPILER.json_schema(schema), '{"n": 6}')


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}},
        {**A, "additionalProperties": True},
        {**A, "additionalProperties": {"type": "string"}},
        {**A, "patternProperties": {"^x": {}}},
        {**A, "required": ["a", "other"]},
        {**A, "minProperties": 2},
        {**A, "const": {"a": 1}, "unevaluatedProperties": False},
        {"allOf": [A, {**B, "patternProperties": {"^x": {}}}]},
        {"allOf": [A, {"$ref": "elsewhere"}]},
        {"allOf": [{"type": "string"}, {"title": "any"}]},
        {"allOf": [{"type": "string", "properties": {"a": {}}}, A]},
        {"allOf": [True, A]},
        {"allOf": [{"$ref": "#"}]},
        {"allOf": [A, {"properties": [], "required": "a"}]},
        {"allOf": [{"anyOf": [A, {"$ref": "#/definitions/a"}]}, B], "definitions": {"a": A}},
        {**B, "anyOf": [A, {"properties": {"c": {"type": "null"}}}]},
        {**B, "$ref": "#/$defs/a", "$defs": {"a": A}},
        {"enum": [A]},
        {"properties": "nonsense", "required": 7},
    ],
)
def test_what_may_have_other_members_stays_as_it_is(schema: dict[str, Any]) -> None:
    assert closed(schema) == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"allOf": [{"$ref": "#/$defs/a"}, B], "$defs": {"a": A}},
        {**B, "anyOf": [A, {"properties": {"c": {"type": "null"}}}]},
        {"type": "object", "properties": {"inner": {"allOf": [A, B]}, "other": A}, "required": ["inner", "other"]},
        {"$ref": "#/$defs/n", "$defs": {"n": {**A, "properties": {"a": {}, "n": {"$ref": "#/$defs/n"}}}}},
    ],
)
def test_every_text_of_a_closed_schema_satisfies_the_original(schema: dict[str, Any]) -> None:
    for seed in range(5):
        text = draw(COMPILER.json_schema(json.dumps(schema).encode()), seed)
        assert text is not None
        jsonschema.validate(json.loads(text), schema)


def test_members_that_nobody_listed_are_not_written() -> None:
    schema = json.dumps(A).encode()
    assert accepts(COMPILER.json_schema(schema), '{"a": 1}')
    assert not accepts(COMPILER.json_schema(schema), '{"a": 1, "z": 2}')

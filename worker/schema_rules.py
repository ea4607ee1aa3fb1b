"""Bounds on JSON Schemas and GBNF grammars, checked before anything is compiled from them."""

from __future__ import annotations

import json
import re
from typing import Any

from worker.schema_closing import closed, with_inner

MAX_SCHEMA_BYTES = 256 << 10
MAX_SCHEMA_DEPTH = 64
MAX_GRAMMAR_BYTES = 256 << 10
MAX_GRAMMAR_DEPTH = 64
MAX_REPETITIONS = 10_000

WHITE_SPACE = r"(\x20|\x0A{1,2}[\x20\x09]{0,20})?"
"""Between the parts of JSON: enough for any usual layout, bounded so that no model fills an answer with it."""

MAX_INTEGER = 10**15
"""Integers without a bound of their own are kept within this, so that no model fills an answer with digits."""

LONGEST = {"time": 24, "date-time": 35, "duration": 64, "email": 254, "hostname": 253}
"""Characters of a formatted text that has no bound of its own, for the same reason."""

_GBNF_TOKEN = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\[(?:\\.|[^\]\\\n])*\]|#[^\n]*|\{\s*\d*\s*,?\s*\d*\s*\}|::=|[()]|[\w-]+|\S'
)


class ConstraintError(ValueError):
    """A schema or grammar that no constraint can be made from; the message is meant for the user."""


def parse_schema(schema_json: bytes) -> dict[str, Any] | bool:
    """The schema as values, `{}` read as "any object". Raises ConstraintError for what is no schema or too large."""
    if len(schema_json) > MAX_SCHEMA_BYTES:
        raise ConstraintError(f"the JSON schema is larger than {MAX_SCHEMA_BYTES} bytes")
    try:
        schema = json.loads(schema_json)
    except (ValueError, RecursionError) as error:
        raise ConstraintError(f"the JSON schema is not valid JSON: {error}") from error
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise ConstraintError("the JSON schema must be an object")
    if _depth(schema) > MAX_SCHEMA_DEPTH:
        raise ConstraintError(f"the JSON schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")
    return schema or {"type": "object"}


def guided(schema: dict[str, Any] | bool) -> dict[str, Any]:
    """A schema with its options for compilation. Raises ConstraintError for one that nothing satisfies."""
    if schema is False:
        raise ConstraintError("the JSON schema is false: nothing satisfies it")
    bounded = {} if schema is True else _with_bounds(closed(schema))
    return {**bounded, "x-guidance": {"whitespace_pattern": WHITE_SPACE}}


def _with_bounds(schema: Any) -> Any:
    """A copy in which every integer has both bounds, and every formatted text an upper one."""
    copy = with_inner(schema, _with_bounds)
    if not isinstance(schema, dict):
        return copy
    longest = LONGEST.get(copy["format"]) if isinstance(copy.get("format"), str) else None
    if longest is not None:
        copy.setdefault("maxLength", longest)
    kinds = copy.get("type")
    is_integer = kinds == "integer" or (isinstance(kinds, list) and "integer" in kinds and "number" not in kinds)
    if is_integer and all(abs(bound) <= MAX_INTEGER for bound in _bounds(copy)):
        if not {"minimum", "exclusiveMinimum"} & copy.keys():
            copy["minimum"] = -MAX_INTEGER
        if not {"maximum", "exclusiveMaximum"} & copy.keys():
            copy["maximum"] = MAX_INTEGER
    return copy


def _bounds(schema: dict[str, Any]) -> list[float]:
    values = (schema.get(key) for key in ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"))
    return [value for value in values if isinstance(value, (int, float))]


def check_grammar(gbnf: str) -> None:
    """Raises ConstraintError for a grammar that is too large, nested too deeply, repeats too often or has no root.

    Whether it is a grammar at all is left to the engine, whose parser this keeps from running out of stack or memory.
    """
    if len(gbnf.encode()) > MAX_GRAMMAR_BYTES:
        raise ConstraintError(f"the grammar is larger than {MAX_GRAMMAR_BYTES} bytes")
    depth = 0
    previous = ""
    has_root = False
    for match in _GBNF_TOKEN.finditer(gbnf):
        token = match.group()
        if token == "(":
            depth += 1
            if depth > MAX_GRAMMAR_DEPTH:
                raise ConstraintError(f"the grammar is nested deeper than {MAX_GRAMMAR_DEPTH} levels")
        elif token == ")":
            depth -= 1
        elif token == "::=":
            has_root = has_root or previous == "root"
        elif token[0] == "{" and any(int(count) > MAX_REPETITIONS for count in re.findall(r"\d+", token)):
            raise ConstraintError(f"the grammar repeats something more than {MAX_REPETITIONS} times")
        previous = token
    if not has_root:
        raise ConstraintError("the grammar has no rule named root")


def _depth(value: Any) -> int:
    """Nesting of objects and arrays, counted without recursion."""
    deepest = 0
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        current, level = waiting.pop()
        children = current.values() if isinstance(current, dict) else current if isinstance(current, list) else ()
        deepest = max(deepest, level)
        waiting.extend((child, level + 1) for child in children)
    return deepest

"""Objects of a JSON Schema that list their members get no others, unless the schema says that they may.

The standard lets members through that nobody has listed. A model that may add some often does not stop to; llama-server
reads schemas as closed too. What is valid under the closed schema is valid under the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

_COMBINING = ("allOf", "anyOf", "oneOf", "$ref", "if", "then", "else", "not", "dependentSchemas")
_SETTLED = ("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames")
_NOTES = ("title", "description", "$comment")
_DEFINITIONS = ("$defs", "definitions", "$schema", "$id")
DATA = frozenset({"enum", "const", "default", "examples", "required"})
"""Keywords whose values are no schemas."""
BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose values hold schemas by names, which may be the names of keywords."""

Node = dict[str, Any]


def closed(schema: Node) -> Node:
    """A copy in which every object that lists its members is closed.

    Plain objects that only hold together (`allOf`) become one. Any other that is a part of another, or referred to from
    there, stays open, as the other's members would be refused; so does one that demands members it does not list.
    """
    merged = _merged(schema, schema)
    parts = _Parts(merged).found
    copy = _copy(merged, parts)
    assert isinstance(copy, dict)
    return copy


def _merged(schema: Any, root: Node) -> Any:
    """A copy in which each `allOf` of plain objects is one object with the members of all."""
    if isinstance(schema, dict) and isinstance(parts := schema.get("allOf"), list):
        rest = {key: value for key, value in schema.items() if key != "allOf"}
        own = {key: rest.pop(key) for key in ("type", "properties", "required") if key in rest}
        plain = [_resolved(part, root) for part in parts] + ([{"properties": {}, **own}] if own else [])
        if all(map(_is_plain, plain)) and rest.keys() <= {*_NOTES, *_DEFINITIONS}:
            schema = {**rest, **_union(plain)}
    return with_inner(schema, lambda inner: _merged(inner, root))


def _resolved(part: Any, root: Node) -> Any:
    """A part, or what it refers to."""
    if isinstance(part, dict) and isinstance(reference := part.get("$ref"), str) and part.keys() <= {"$ref", *_NOTES}:
        return target(root, reference)
    return part


def _is_plain(node: Any) -> bool:
    """Whether a schema describes an object by its members alone."""
    return (
        isinstance(node, dict)
        and node.keys() <= {"type", "properties", "required", *_NOTES}
        and node.get("type", "object") == "object"
        and isinstance(node.get("properties"), dict)
        and isinstance(node.get("required", []), list)
    )


def _union(parts: list[Node]) -> Node:
    """One object for several; a member that more than one lists must satisfy each of them."""
    properties: Node = {}
    required: list[str] = []
    for part in parts:
        for name, value in part.get("properties", {}).items():
            properties[name] = {"allOf": [properties[name], value]} if name in properties else value
        required += [name for name in part.get("required", []) if name not in required]
    return {"type": "object", "properties": properties, "required": required}


class _Parts:
    """Finds the schemas that describe an object together with others: `found` holds their identities."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self.found: set[int] = set()
        for node in _nodes(root):
            several = sum(keyword in node for keyword in ("properties", *_COMBINING)) > 1
            for part, is_one_of_all in self._parts(node):
                if is_one_of_all or several:
                    self._mark(part)

    def _mark(self, part: Any) -> None:
        waiting = [part]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict) and id(node) not in self.found:
                self.found.add(id(node))
                waiting.extend(inner for inner, _ in self._parts(node))

    def _parts(self, node: Node) -> Iterator[tuple[Any, bool]]:
        """The schemas that hold for the same value as `node`, and whether each holds together with others of them."""
        for part in _list(node.get("allOf")):
            yield part, True
        for keyword in ("anyOf", "oneOf"):
            for part in _list(node.get(keyword)):
                yield part, False
        for keyword in ("if", "then", "else", "not"):
            if keyword in node:
                yield node[keyword], True
        if isinstance(reference := node.get("$ref"), str):
            yield target(self._root, reference), False


def target(root: Node, reference: str) -> Any:
    """What a reference within a schema names, None for any other."""
    if not reference.startswith("#"):
        return None
    node: Any = root
    for name in filter(None, reference[1:].split("/")):
        key = name.replace("~1", "/").replace("~0", "~")
        node = node.get(key) if isinstance(node, dict) else None
    return node


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _nodes(schema: Any) -> Iterator[Node]:
    """A schema and every schema in it, in no order."""
    waiting = [schema]
    while waiting:
        current = waiting.pop()
        if isinstance(current, list):
            waiting.extend(current)
        elif isinstance(current, dict):
            yield current
            for key, value in current.items():
                if key in BY_NAME and isinstance(value, dict):
                    waiting.extend(value.values())
                elif key not in DATA:
                    waiting.append(value)


def _copy(schema: Any, parts: set[int]) -> Any:
    copy = with_inner(schema, lambda inner: _copy(inner, parts))
    if isinstance(schema, dict) and id(schema) not in parts and _lists_all(schema):
        copy["additionalProperties"] = False
    return copy


def with_inner(schema: Any, change: Callable[[Any], Any]) -> Any:
    """A copy of a schema, or of a list of them, with the schemas directly in it changed."""
    if isinstance(schema, list):
        return [change(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    copy: Node = {}
    for key, value in schema.items():
        if key in BY_NAME and isinstance(value, dict):
            copy[key] = {name: change(entry) for name, entry in value.items()}
        else:
            copy[key] = value if key in DATA else change(value)
    return copy


def _lists_all(node: Node) -> bool:
    """Whether a schema is one of an object, says nothing of other members, and can do without them."""
    properties, required, least = node.get("properties"), node.get("required", []), node.get("minProperties", 0)
    if not isinstance(properties, dict) or not isinstance(required, list) or not isinstance(least, int):
        return False
    if not all(isinstance(name, str) and name in properties for name in required):
        return False
    return len(properties) >= max(1, least) and not any(key in node for key in (*_COMBINING, *_SETTLED))

"""Argument values that a model writes as plain text: their JSON by what the tool's schema says of them."""

from __future__ import annotations

import json
from typing import Any

from protocol.chat import Tool
from worker.chat.json_text import NOT_JSON, decode

_MAX_DEPTH = 16


class ParameterTypes:
    """The types that a tool's parameters may have."""

    def __init__(self, tool: Tool) -> None:
        schema = decode(tool.parameters_json.decode("utf-8", "replace") or "{}")
        self._schema: dict[str, Any] = schema if isinstance(schema, dict) else {}
        properties = self._schema.get("properties")
        self._properties: dict[str, Any] = properties if isinstance(properties, dict) else {}

    def is_text(self, name: str) -> bool:
        """Whether a value can be nothing but a string, so that its text may be sent as it comes."""
        return self.types(name) == {"string"}

    def types(self, name: str) -> set[str]:
        """JSON types that a parameter may have; empty if the schema does not say."""
        return self._types(self._properties.get(name), 0)

    def as_json(self, name: str, text: str) -> str:
        """A whole value's text as JSON: what it says if the schema allows it, a string otherwise."""
        types = self.types(name)
        if types == {"string"}:
            return json.dumps(text, ensure_ascii=False)
        stripped = text.strip()
        if types and "boolean" in types and stripped in {"True", "False"}:
            return stripped.lower()
        if stripped == "None" and "null" in types:
            return "null"
        value = decode(stripped)
        if value is not NOT_JSON and not (types and "string" in types and _type_of(value) not in types):
            return stripped
        return json.dumps(text, ensure_ascii=False)

    def _types(self, schema: object, depth: int) -> set[str]:
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return set()
        found: set[str] = set()
        if isinstance(reference := schema.get("$ref"), str):
            found |= self._types(self._resolve(reference), depth + 1)
        declared = schema.get("type")
        if isinstance(declared, str):
            found.add(declared)
        elif isinstance(declared, list):
            found |= {entry for entry in declared if isinstance(entry, str)}
        if declared is None:
            for keyword in ("anyOf", "oneOf", "allOf"):
                branches = schema.get(keyword)
                for branch in branches if isinstance(branches, list) else ():
                    found |= self._types(branch, depth + 1)
            if isinstance(values := schema.get("enum"), list):
                found |= {_type_of(value) for value in values}
            elif "const" in schema:
                found.add(_type_of(schema["const"]))
        if "number" in found:
            found.add("integer")
        return found

    def _resolve(self, reference: str) -> object:
        value: object = self._schema
        for part in reference.removeprefix("#").strip("/").split("/"):
            value = value.get(part) if isinstance(value, dict) else None
        return value


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"

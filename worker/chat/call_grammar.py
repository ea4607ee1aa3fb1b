"""How a call is written, as rules of llguidance's Lark dialect: two shapes that every family fits."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from protocol.chat import Tool
from worker.chat.values import ParameterTypes
from worker.schema_rules import ConstraintError, guided, parse_schema

_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


_LITERAL = re.compile(r'"(?:\\.|[^"\\])*"')
_MARK = re.compile(r"(.*?)\s*\[?\s*(?:\{.*)?", re.DOTALL)
"""What opens a call, without the beginning of JSON behind it."""


def term(text: str) -> str:
    """A text as a Lark term; nothing for an empty one."""
    return json.dumps(text, ensure_ascii=False) if text else ""


@dataclass(frozen=True, slots=True)
class WholeArguments:
    """A family that writes arguments as one JSON object.

    A call is `before`, the name, `between`, the arguments, `after`; calls stand between `begin` and `end`, `separator`
    between them. All are Lark terms: quoted texts and regular expressions. Without a separator there is only one call.
    """

    before: str
    between: str
    after: str = ""
    begin: str = ""
    separator: str | None = ""
    end: str = ""
    has_mark: bool = True
    """Whether what opens a call, without the tool's name, is nothing that other answers contain."""

    @property
    def opens_at_start(self) -> bool:
        """Whether nothing comes before a call."""
        return not self.has_mark

    def openings(self, tools: Sequence[Tool]) -> tuple[str, ...]:
        """The texts that open calls."""
        if self.has_mark:
            return tuple(_mark(text) for text in _literals(self.begin or self.before))
        before = "".join(_literals(self.before))
        return tuple(f"{before}{tool.name}{_literals(self.between)[0]}" for tool in tools)

    def call(self, position: int, tool: Tool) -> list[str]:
        """The rules of one tool's call; the first is named `call_<position>`."""
        schema = json.dumps(guided(_schema(tool)), ensure_ascii=False)
        return [
            f"call_{position}: {self.before} {term(tool.name)} {self.between} args_{position} {self.after}",
            f"args_{position}: %json {schema}",
        ]


@dataclass(frozen=True, slots=True)
class TaggedArguments:
    """A family that writes each argument for itself.

    `{name}` and `{key}` in the texts are the tool's and the parameter's names, `{string}` is `true` or `false`. A value
    ends with `close`; strings are free text before it, between two `quote` where the family has them, or JSON strings
    where `json_strings`.
    """

    open: str
    parameter: str
    close: str
    after_parameter: str = ""
    end_call: str = ""
    begin: str = ""
    separator: str | None = ""
    end: str = ""
    comma: str = ""
    quote: str = ""
    json_strings: bool = False
    has_mark: bool = True

    @property
    def opens_at_start(self) -> bool:
        return False

    def openings(self, tools: Sequence[Tool]) -> tuple[str, ...]:
        """The texts that open calls."""
        if self.begin:
            return tuple(_mark(text) for text in _literals(self.begin) if text.strip())
        if self.has_mark:
            return (self.open.partition("{name}")[0].partition("\n")[0],)
        return tuple(self.open.format(name=tool.name) for tool in tools)

    def call(self, position: int, tool: Tool) -> list[str]:
        """The rules of one tool's call; the first is named `call_<position>`."""
        schema = _schema(tool)
        required = {key for key in schema.get("required", []) if isinstance(key, str)}
        keys = list(schema.get("properties") or {})
        types = ParameterTypes(tool)
        rules: list[str] = []
        terms: list[str] = []
        keys.sort(key=lambda key: key not in required)
        for index, key in enumerate(keys):
            rule = f"param_{position}_{index}"
            rules += self._parameter(rule, key, schema, types.is_text(key) and not self.json_strings, first=index == 0)
            terms.append(rule if key in required else f"{rule}?")
        body = " ".join(terms)
        head = term(self.open.format(name=tool.name))
        return [f"call_{position}: {head} {body} {term(self.end_call)}", *rules]

    def _parameter(self, rule: str, key: str, schema: dict[str, Any], is_text: bool, *, first: bool) -> list[str]:
        head = ("" if first else self.comma) + self.parameter.format(key=key, string=str(is_text).lower())
        close = self.close.format(key=key)
        value_schema = _part(schema, key)
        if not is_text:
            return [
                f"{rule}: {term(head)} value_{rule} {term(close + self.after_parameter)}",
                f"value_{rule}: %json {json.dumps(guided(value_schema), ensure_ascii=False)}",
            ]
        if isinstance(values := value_schema.get("enum"), list):
            options = " | ".join(term(f"{self.quote}{value}{self.quote}") for value in values)
            return [f"{rule}: {term(head)} ({options}) {term(close + self.after_parameter)}"]
        suffix = self.quote or close
        rest = self.after_parameter if not self.quote else close + self.after_parameter
        return [
            f"{rule}: {term(head + self.quote)} value_{rule} {term(rest)}",
            f"value_{rule}[suffix={term(suffix)}]: /(?s:.*)/",
        ]


def _part(schema: dict[str, Any], key: str) -> dict[str, Any]:
    """One property's schema, with the definitions that it may refer to."""
    found = schema["properties"][key]
    part = dict(found) if isinstance(found, dict) else {}
    return part | {keyword: schema[keyword] for keyword in ("$defs", "definitions") if keyword in schema}


Shape = WholeArguments | TaggedArguments


def _literals(terms: str) -> list[str]:
    """The quoted texts among Lark terms."""
    return [str(json.loads(text)) for text in _LITERAL.findall(terms)]


def _mark(text: str) -> str:
    found = _MARK.fullmatch(text)
    return found[1] if found else text


def _schema(tool: Tool) -> dict[str, Any]:
    """A tool's schema; one without members allows no arguments. Raises ConstraintError for what is no schema."""
    schema = parse_schema(tool.parameters_json or b"{}")
    if isinstance(schema, bool) or "properties" not in schema:
        return dict(_NO_ARGUMENTS)
    if not isinstance(schema["properties"], dict) or not isinstance(schema.get("required", []), list):
        raise ConstraintError(f"the parameters of tool {tool.name!r} are no JSON schema of an object")
    return schema

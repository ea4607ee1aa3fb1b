"""MiniMax M3: arguments as nested elements, each tag behind a token of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from worker.chat.calls import OpenCall
from worker.chat.content import content_and_calls
from worker.chat.json_text import NOT_JSON, decode, quoted
from worker.chat.stream import Steps, Stream
from worker.chat.syntax import OutputSyntax

TOKEN = "]<]minimax[>["
SECTION, SECTION_END = f"{TOKEN}<tool_call>", f"{TOKEN}</tool_call>"
CALL, CALL_END = f'{TOKEN}<invoke name="', f"{TOKEN}</invoke>"
TOKENS = (TOKEN, "<tool_call>", "</tool_call>")

_OPEN, _CLOSE, _ITEM = f"{TOKEN}<", f"{TOKEN}</", f"{TOKEN}<item>"
_MAX_NAME_CHARS = 256
_MAX_DEPTH = 32

Schema = dict[str, Any]


def minimax_m3(stream: Stream, syntax: OutputSyntax) -> Steps[None]:
    """The family's parser."""
    yield from content_and_calls(stream, syntax, (SECTION,), _section)


def _section(stream: Stream, syntax: OutputSyntax, mark: str) -> Steps[bool]:
    found = False
    while True:
        yield from stream.spaces()
        if (yield from stream.accept(SECTION_END)) or not (yield from stream.accept(CALL)):
            return found
        name, end = yield from stream.head(('">',), _MAX_NAME_CHARS)
        tool = syntax.tool(name)
        if not end or tool is None:
            return found
        call = OpenCall(stream, name)
        found = True
        schema = decode(tool.parameters_json.decode("utf-8", "replace"))
        complete = yield from _members(stream, call, schema if isinstance(schema, dict) else {}, 1)
        if complete:
            yield from stream.accept(CALL_END)


def _members(stream: Stream, call: OpenCall, schema: Schema, depth: int) -> Steps[bool]:
    """Elements up to a closing tag, as an object; False if the text ended before it."""
    call.arguments("{")
    separator = ""
    while True:
        yield from stream.spaces()
        if (yield from stream.starts(_CLOSE)):
            call.arguments("}")
            return True
        if not (yield from stream.accept(_OPEN)):
            return False
        name, end = yield from stream.head((">",), _MAX_NAME_CHARS)
        if not end:
            return False
        call.arguments(f"{separator}{json.dumps(name, ensure_ascii=False)}: ")
        separator = ", "
        if not (yield from _value(stream, call, _property(schema, name), f"{_CLOSE}{name}>", depth + 1)):
            return False


def _value(stream: Stream, call: OpenCall, schema: Schema, close: str, depth: int) -> Steps[bool]:
    branches = list(_branches(schema, 0))
    types = {kind for branch in branches for kind in _declared(branch)}
    if "string" in types or depth > _MAX_DEPTH:
        call.arguments('"')
        if not (yield from stream.until((close,), lambda text: call.arguments(quoted(text)))):
            return False
        call.arguments('"')
        return True
    if (yield from _is_nested(stream)):
        if (yield from stream.starts(_ITEM)):
            complete = yield from _items(stream, call, branches, depth)
        else:
            chosen = next((branch for branch in branches if "properties" in branch), {})
            complete = yield from _members(stream, call, chosen, depth)
        return complete and bool((yield from stream.accept(close)))
    parts: list[str] = []
    if not (yield from stream.until((close,), parts.append)):
        call.arguments("".join(parts))
        return False
    call.arguments(_scalar("".join(parts), types))
    return True


def _items(stream: Stream, call: OpenCall, branches: list[Schema], depth: int) -> Steps[bool]:
    items: Schema = next((branch["items"] for branch in branches if isinstance(branch.get("items"), dict)), {})
    call.arguments("[")
    separator = ""
    while True:
        yield from stream.spaces()
        if not (yield from stream.accept(_ITEM)):
            break
        call.arguments(separator)
        separator = ", "
        if not (yield from _value(stream, call, items, f"{_CLOSE}item>", depth + 1)):
            return False
    if not (yield from stream.starts(_CLOSE)):
        return False
    call.arguments("]")
    return True


def _is_nested(stream: Stream) -> Steps[bool]:
    """Whether the value begins with an element, behind white space."""
    stream.attempt()
    yield from stream.spaces()
    nested = (yield from stream.starts(_OPEN, _CLOSE)) == _OPEN
    if nested:
        stream.commit()
    else:
        stream.give_up()
    return nested


def _scalar(text: str, types: set[str]) -> str:
    stripped = text.strip()
    if not stripped and "array" in types:
        return "[]"
    if not stripped and "object" in types:
        return "{}"
    return stripped if decode(stripped) is not NOT_JSON else json.dumps(text, ensure_ascii=False)


def _property(schema: Schema, name: str) -> Schema:
    properties = schema.get("properties")
    found = properties.get(name) if isinstance(properties, dict) else None
    return found if isinstance(found, dict) else {"type": "string"}


def _branches(schema: Schema, depth: int) -> Iterator[Schema]:
    yield schema
    for keyword in ("anyOf", "oneOf", "allOf"):
        branches = schema.get(keyword)
        for branch in branches if isinstance(branches, list) else ():
            if isinstance(branch, dict) and depth < _MAX_DEPTH:
                yield from _branches(branch, depth + 1)


def _declared(schema: Schema) -> list[str]:
    declared = schema.get("type")
    return (
        [declared]
        if isinstance(declared, str)
        else [kind for kind in declared if isinstance(kind, str)]
        if isinstance(declared, list)
        else []
    )

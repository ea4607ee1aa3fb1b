"""How SPEC.md writes the types and defaults of fields, and what it says of each struct."""

from __future__ import annotations

import enum
import re
import types
import typing
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

import protocol

PAGE = Path(protocol.__path__[0]) / "SPEC.md"

_HEADING = re.compile(r"^#### `(\w+)`(?: — (?:tag `(\w+)`|(array)))?$")
_ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$")


class Section(Struct):
    """What the page says of one struct: its tag, whether it is an array, and (type, default, meaning) per field."""

    tag: str
    array: bool
    fields: dict[str, tuple[str, str, str]]


def sections() -> dict[str, Section]:
    found: dict[str, Section] = {}
    current: Section | None = None
    for line in PAGE.read_text().splitlines():
        if heading := _HEADING.match(line):
            current = found.setdefault(heading[1], Section(heading[2] or "", bool(heading[3]), {}))
        elif line.startswith("#"):
            current = None
        elif current is not None and (row := _ROW.match(line)):
            current.fields[row[1]] = (row[2], row[3], row[4])
    return found


def describe(kind: Any) -> str:
    """A type as the page writes it."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return " or ".join("nil" if argument is type(None) else describe(argument) for argument in arguments)
    if origin is typing.Literal:
        return " or ".join(f"`{argument}`" for argument in arguments)
    if origin is tuple and arguments[-1] is Ellipsis:
        inner = describe(arguments[0])
        return f"array of ({inner})" if " or " in inner else f"array of {inner}"
    if origin is tuple:
        return f"array ({', '.join(map(describe, arguments))})"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "str"
    if isinstance(kind, type) and issubclass(kind, Struct):
        return f"`{kind.__name__}`"
    assert isinstance(kind, type)
    return kind.__name__


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """A default as the page writes it."""
    if field.required:
        return "required"
    value = field.default
    if value is None:
        return "nil"
    if value == ():
        return "empty"
    if isinstance(value, Struct):
        return "all defaults"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, bytes):
        return f"`{value.decode()}`" if value else "empty"
    if isinstance(value, str):
        return f"`{value}`" if value else "empty"
    if isinstance(value, tuple):
        return " ".join(f"`{item}`" for item in value).replace("\n", "\\n")
    return f"`{value}`"

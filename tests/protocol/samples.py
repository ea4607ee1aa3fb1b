"""Every struct of the wire contract, filled with values that follow from the names of its fields alone.

So a golden file changes when a name, a type, an order or a default changes, and not when another struct does.
"""

from __future__ import annotations

import enum
import importlib
import pkgutil
import types
import typing
import zlib
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

import protocol

NOT_ON_THE_WIRE = frozenset({"protocol.bootstrap"})
"""Its struct goes through a pipe, as JSON."""


@cache
def structs() -> tuple[type[Struct], ...]:
    """All structs of the contract by module and name."""
    found: list[type[Struct]] = []
    for info in pkgutil.iter_modules(protocol.__path__, "protocol."):
        module = importlib.import_module(info.name)
        if info.name in NOT_ON_THE_WIRE:
            continue
        found.extend(
            value
            for value in vars(module).values()
            if isinstance(value, type) and issubclass(value, Struct) and value.__module__ == info.name
        )
    return tuple(found)


def full(struct: type[Struct]) -> Struct:
    """A value in which no field has its default."""
    hints = typing.get_type_hints(struct)
    return struct(**{field.name: _value(hints[field.name], field.name) for field in msgspec.structs.fields(struct)})


def minimal(struct: type[Struct]) -> Struct:
    """A value with the required fields only."""
    hints = typing.get_type_hints(struct)
    return struct(
        **{
            field.name: _value(hints[field.name], field.name)
            for field in msgspec.structs.fields(struct)
            if field.required
        }
    )


def _value(kind: Any, name: str) -> Any:
    number = zlib.crc32(name.encode()) % 1000 + 1
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _value(next(argument for argument in arguments if argument is not type(None)), name)
    if origin is typing.Literal:
        return arguments[1]
    if origin is tuple:
        items = arguments[:1] if arguments[-1] is Ellipsis else arguments
        return tuple(_value(item, f"{name}[{index}]") for index, item in enumerate(items))
    if kind is bool:
        return True
    if kind is int:
        return number
    if kind is float:
        return number + 0.5
    if kind is str:
        return name
    if kind is bytes:
        return name.encode()
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return list(kind)[1 % len(kind)]
    if isinstance(kind, type) and issubclass(kind, Struct):
        return minimal(kind)
    raise TypeError(f"{name}: no sample of {kind!r}")

"""The modules of this repository and what they import, read from their source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).parents[2]
PACKAGES = ("protocol", "router", "worker", "downloader")


class Module(Struct, frozen=True):
    """One source file. `imports` are those at the top, `lazy` those inside functions; both as full names."""

    name: str
    path: Path
    imports: frozenset[str]
    lazy: frozenset[str]
    relative: bool
    lines: int

    @property
    def package(self) -> str:
        return self.name.split(".")[0]


@cache
def modules() -> tuple[Module, ...]:
    """All modules of the four packages."""
    files = (file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py")))
    return tuple(_read(file) for file in files)


def _read(path: Path) -> Module:
    text = path.read_text()
    tree = ast.parse(text)
    parts = path.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    inside = {id(node) for function in _functions(tree) for node in ast.walk(function)}
    top: set[str] = set()
    lazy: set[str] = set()
    relative = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            (lazy if id(node) in inside else top).update(_names(node))
            relative |= isinstance(node, ast.ImportFrom) and node.level > 0
    return Module(name, path, frozenset(top), frozenset(lazy), relative, len(text.splitlines()))


def _functions(tree: ast.Module) -> Iterator[ast.AST]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))


def _names(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The modules that a statement may load: `from a import b` is `a`, and `a.b` in case that is a module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif node.module:
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_own(name: str) -> bool:
    return name.split(".")[0] in PACKAGES

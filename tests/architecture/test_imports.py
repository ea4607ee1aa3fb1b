"""Who may import whom."""

from __future__ import annotations

import re

import pytest

from tests.architecture.modules import PACKAGES, Module, is_own, modules

RESTRICTED = {
    "llama_cpp": r"worker\.llama_\w+",
    "huggingface_hub": r"downloader\.hub",
    "zmq": r"protocol\.\w+|router\.transport\.\w+",
    "starlette": r"router\.app|router\.http(\.\w+)*",
}
"""A library -> the modules that may import it."""

HEAVY = frozenset({"llama_cpp", "numpy", "huggingface_hub", "llguidance", "torch", "pydantic"})
"""What would take the router beyond its memory."""

LAYERS = (
    ("router.cli",),
    ("router.app",),
    ("router.http",),
    ("router.inference", "router.fanin"),
    ("router.downloads",),
    ("router.supervision",),
    ("router.transport",),
    ("router.config",),
    ("router.scheduling",),
)
"""Layers of the router from the outermost: each imports only from itself and from those behind it."""


def layer_of(name: str) -> int | None:
    for index, prefixes in enumerate(LAYERS):
        if any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes):
            return index
    return None


def own(module: Module) -> set[str]:
    return {name.split(".")[0] for name in module.imports | module.lazy if is_own(name)}


def libraries(module: Module) -> set[str]:
    return {name.split(".")[0] for name in module.imports | module.lazy}


def test_packages_import_only_the_protocol_and_themselves() -> None:
    assert [module.name for module in modules() if own(module) - {module.package, "protocol"}] == []
    assert [module.name for module in modules() if module.package == "protocol" and own(module) > {"protocol"}] == []


@pytest.mark.parametrize(("library", "place"), RESTRICTED.items())
def test_a_library_stays_where_it_belongs(library: str, place: str) -> None:
    users = [module.name for module in modules() if library in libraries(module)]
    assert users
    assert [name for name in users if not re.fullmatch(place, name)] == []


def test_no_lazy_imports_of_our_own_and_no_relative_ones() -> None:
    assert [module.name for module in modules() if any(is_own(name) for name in module.lazy)] == []
    assert [module.name for module in modules() if module.relative] == []


def test_the_router_is_light() -> None:
    users = [module.name for module in modules() if module.package == "router" and libraries(module) & HEAVY]
    assert users == []


def test_the_routers_layers_import_inwards() -> None:
    wrong = [
        f"{module.name} imports {name}"
        for module in modules()
        for name in module.imports
        if (mine := layer_of(module.name)) is not None and (other := layer_of(name)) is not None and other < mine
    ]
    assert wrong == []


def test_there_are_no_cycles() -> None:
    known = {module.name for module in modules()}
    edges = {module.name: sorted(module.imports & known - {module.name}) for module in modules()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, " -> ".join((*path[path.index(name) :], name))
        if name not in done:
            for other in edges[name]:
                visit(other, (*path, name))
            done.add(name)

    for name in edges:
        visit(name, ())


def test_the_rules_see_the_whole_repository() -> None:
    assert {module.package for module in modules()} == set(PACKAGES)
    assert len(modules()) > 50

"""Modules stay small enough to be read in one go."""

from __future__ import annotations

import statistics

import pytest

from tests.architecture.modules import PACKAGES, modules

LIMIT = 600
"""Lines beyond which a module surely does more than one thing."""
TABLES = frozenset({"router.config.flags", "worker.llama_library"})
"""Modules that are one long literal table."""
USUAL = 300


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_are_small(package: str) -> None:
    sizes = {module.name: module.lines for module in modules() if module.package == package}
    large = {name: size for name, size in sizes.items() if size > LIMIT and name not in TABLES}
    assert not large
    assert statistics.median(sizes.values()) <= USUAL / 2
    beyond = [name for name, size in sizes.items() if size > USUAL]
    assert len(beyond) <= max(1, len(sizes) // 6), f"too many modules of more than {USUAL} lines: {beyond}"

"""Where the deployment files are, and how the tests read them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def load_yaml(path: Path) -> list[Any]:
    """All documents of a YAML file."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return list(yaml.safe_load_all(path.read_text()))


def unit_settings(path: Path) -> dict[str, list[str]]:
    """`Name=value` lines of a systemd unit, in order; sections are not told apart."""
    settings: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if "=" in line and not line.startswith(("#", "[")):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value)
    return settings


def variables(text: str) -> Iterator[str]:
    """Every `LLAMAHERD_…` environment name in a text."""
    yield from re.findall(r"\bLLAMAHERD_[A-Z_]+\b", text)

"""One gateway with every suite's model, as presets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.process import Gateway, running
from tests.peer.servers import Server
from tests.peer.suites import SUITES


def _presets(folder: Path) -> str:
    sections = []
    for name, suite in SUITES.items():
        own = folder / name.replace(",", "")  # a comma separates files
        own.mkdir()
        model, options = suite.make(own)
        sections.append("\n".join([f"[{name}]", f"model = {model}", *(f"{key} = {options[key]}" for key in options)]))
    return "\n\n".join(sections)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("peer")
    presets = folder / "presets.ini"
    presets.write_text(_presets(folder))
    with running(folder / "home", "--models-preset", str(presets), "--models-max", "2") as started:
        yield started


@pytest.fixture
def server(gateway: Gateway) -> Iterator[Server]:
    """The gateway; `of` names the suite whose model is meant."""
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        yield Server(client)

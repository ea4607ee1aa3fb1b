"""Herds of fake workers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.herd import FakePlans, Herd

MakeHerd = Callable[..., Awaitable[Herd]]


@pytest.fixture(autouse=True)
def no_socket_files(tmp_path: Path) -> Iterator[None]:
    """Fails a test that leaves a socket in its folder."""
    yield
    assert [path for path in tmp_path.rglob("*") if path.is_socket()] == []


@pytest.fixture
async def make_herd(tmp_path: Path, no_socket_files: None) -> AsyncIterator[MakeHerd]:
    """Opens a herd whose models are named by keyword: `await make_herd({"a": "slow_load"}, policy=…)`."""
    herds: list[Herd] = []

    async def make(models: dict[str, str], traits: dict[str, Any] | None = None, **options: Any) -> Herd:
        herd = Herd(tmp_path / f"herd{len(herds)}", FakePlans(models, **(traits or {})), **options)
        herds.append(herd)
        await herd.open()
        return herd

    yield make
    for herd in herds:
        await herd.close()
        assert not herd.runtime.path.exists()

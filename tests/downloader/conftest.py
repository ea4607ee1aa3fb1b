"""A fake hub, an empty cache, and a downloader over both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.downloader.desk import Desk
from tests.fakes.hub import FakeHub
from tests.fakes.hub_fixture import hub as hub


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "home" / "hub"


@pytest.fixture
async def desk(hub: FakeHub, cache: Path) -> AsyncIterator[Desk]:
    """A downloader, and what it says."""
    desk = Desk(cache)
    yield desk
    await desk.close()

"""The router's side of downloads over a real downloader process and a fake hub."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.hub import FakeHub
from tests.fakes.hub_fixture import hub as hub
from tests.router.downloads.office import Office


@pytest.fixture
async def office(hub: FakeHub, tmp_path: Path) -> AsyncIterator[Office]:
    """Downloads with everything behind them, on the event loop of the test."""
    # A socket's path may not be long, and the folders of tests are.
    runtime = Path(tempfile.mkdtemp(prefix="herd-"))
    office = Office(tmp_path, runtime)
    await office.open()
    yield office
    await office.close()
    shutil.rmtree(runtime, ignore_errors=True)

"""What there is when a process is ready is not looked at again."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from protocol.garbage import THRESHOLD, quiet_collection


@pytest.fixture
def as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("as_before")
def test_what_there_is_stays() -> None:
    lasting = [object()]
    quiet_collection()
    assert not any(found is lasting for found in gc.get_objects())
    assert gc.get_threshold()[0] == THRESHOLD


@pytest.mark.usefixtures("as_before")
def test_cycles_are_still_collected() -> None:
    quiet_collection()
    cycle: list[object] = []
    cycle.append(cycle)
    del cycle
    assert gc.collect() >= 1

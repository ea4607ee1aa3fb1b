"""For all tests: nothing is left behind."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests import leaks


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fails a test that leaves a child, a thread, a socket or a pipe. It is the last to be torn down."""
    if sys.platform != "linux":
        yield
        return
    before = leaks.look()
    yield
    left = leaks.leaked_since(before)
    if left:
        pytest.fail("left behind: " + "; ".join(left))

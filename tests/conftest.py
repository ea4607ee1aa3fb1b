"""For all tests: the loop they run on, and that nothing is left behind."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator

import pytest
import uvloop

from tests import leaks


def pytest_sessionstart() -> None:
    """The first loop of a process makes a pipe that stays: no test shall be blamed for it."""
    loop = uvloop.new_event_loop()
    loop.run_until_complete(asyncio.sleep(0))  # noqa: TID251
    loop.close()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Async tests run on the gateway's loop, whose timers and descriptors differ from the standard library's."""
    return {"uvloop": uvloop.new_event_loop}


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

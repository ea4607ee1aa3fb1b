"""A client that stays or leaves while its answer is made."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest
from starlette.types import Message

from router.http.connection import PATIENCE, WhileConnected
from router.http.errors import ClientGone


class Connection:
    """`receive` as a server gives it: it answers once the client has gone."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_client_that_leaves_ends_the_block() -> None:
    connection = Connection()
    connection.gone.set()
    with pytest.raises(ClientGone), WhileConnected(connection.receive):
        await asyncio.Event().wait()


async def test_a_cancellation_from_elsewhere_goes_on() -> None:
    connection = Connection()

    async def answer() -> None:
        with WhileConnected(connection.receive):
            await asyncio.Event().wait()

    task = asyncio.create_task(answer())
    await asyncio.wait([task], timeout=0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_quick_answer_is_not_looked_after() -> None:
    connection = Connection()
    tasks = asyncio.all_tasks()
    with WhileConnected(connection.receive):
        assert asyncio.all_tasks() == tasks


@pytest.mark.usefixtures("no_collection")
async def test_nothing_of_an_answered_request_waits_for_the_collection_of_cycles() -> None:
    connection = Connection()

    async def answer() -> None:
        with WhileConnected(connection.receive):
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=3 * PATIENCE)

    await asyncio.create_task(answer())
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)  # the watch ends by itself
    assert not [found for found in gc.get_objects() if isinstance(found, WhileConnected)]

"""The ROUTER socket on the loop, with real DEALER peers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import zmq

from protocol import codec
from protocol.bootstrap import Bootstrap
from protocol.channel import Channel
from protocol.control import QueryStatus
from protocol.errors import ExitCode, ProtocolViolation
from protocol.handshake import PROTOCOL_VERSION, Hello, Welcome
from protocol.status import UpdateStatus, WorkerState
from protocol.text import Tokenize
from router.scheduling.events import Child
from router.transport.link import DRAIN_LIMIT, ChildGone, Link
from tests.eventually import eventually_async

HELLO = Hello(PROTOCOL_VERSION, "0", 1, "worker")
CHILD = Child("w1", 1)


class Received:
    """A link and what came through it. Welcomes everybody who says hello."""

    def __init__(self) -> None:
        self.messages: list[tuple[Child, codec.FromChild]] = []
        self.violations: list[tuple[Child, ProtocolViolation]] = []
        self.link = Link(self.take, lambda child, violation: self.violations.append((child, violation)))

    def take(self, child: Child, message: codec.FromChild) -> None:
        self.messages.append((child, message))
        if isinstance(message, Hello):
            self.link.send(child, Welcome(PROTOCOL_VERSION))


@pytest.fixture(params=["ipc", "tcp"])
async def received(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Received]:
    received = Received()
    received.link.bind(tmp_path if request.param == "ipc" else None)
    yield received
    received.link.close()
    assert list(tmp_path.iterdir()) == []


def make_channel(bootstrap: Bootstrap) -> Channel:
    ends: list[ExitCode] = []
    return Channel(bootstrap, HELLO, lambda nonce: UpdateStatus(1, WorkerState.EMPTY, answers=nonce), ends.append)


async def start(channel: Channel) -> None:
    await asyncio.to_thread(channel.start)


async def stop(channel: Channel) -> None:
    await asyncio.to_thread(channel.close, 0.0)


async def test_messages_go_both_ways(received: Received) -> None:
    channel = make_channel(received.link.expect(CHILD))
    await start(channel)
    received.link.send(CHILD, Tokenize(1, "a"))
    assert await asyncio.to_thread(channel.work.wait, 5)
    received.link.send(CHILD, QueryStatus(9))
    await eventually_async(lambda: len(received.messages) == 2, 5, "the status came")
    assert received.messages == [(CHILD, HELLO), (CHILD, UpdateStatus(1, WorkerState.EMPTY, answers=9))]
    await stop(channel)


async def test_no_frame_is_left_behind_under_load_in_both_directions(received: Received) -> None:
    """Sends and arrivals race for the edge-triggered descriptor; several drains' worth of frames must all come."""
    channel = make_channel(received.link.expect(CHILD))
    await start(channel)
    count = DRAIN_LIMIT * 3

    def flood() -> None:
        for number in range(count):
            channel.send(UpdateStatus(number, WorkerState.READY))

    thread = threading.Thread(target=flood)
    thread.start()
    for number in range(count):
        received.link.send(CHILD, Tokenize(number, "x"))
    await eventually_async(lambda: len(received.messages) == count + 1, 20, "all frames came")
    await eventually_async(lambda: len(channel.work) == count, 20, "all requests arrived")
    thread.join()
    assert channel.work.requests() == tuple(range(count))
    await stop(channel)


async def test_a_handler_that_fails_strands_no_frame(received: Received) -> None:
    channel = make_channel(received.link.expect(CHILD))
    await start(channel)
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    take = received.take
    calls = 0

    def fail_once(child: Child, message: codec.FromChild) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RuntimeError("handler")
        take(child, message)

    received.link._on_message = fail_once
    for number in range(20):
        channel.send(UpdateStatus(number, WorkerState.READY))
    await eventually_async(lambda: len(received.messages) == 20, 5, "the other 19 came")
    assert len(faults) == 1
    await stop(channel)


async def test_sending_to_a_child_that_never_spoke_is_an_error(received: Received) -> None:
    received.link.expect(CHILD)
    with pytest.raises(ChildGone):
        received.link.send(CHILD, QueryStatus(1))


async def test_sending_to_a_child_that_left_is_an_error(received: Received) -> None:
    channel = make_channel(received.link.expect(CHILD))
    await start(channel)
    await stop(channel)

    def gone() -> bool:
        try:
            received.link.send(CHILD, QueryStatus(1))
        except ChildGone:
            return True
        return False

    await eventually_async(gone, 5, "the router notices")


async def test_a_dead_incarnation_is_not_heard(received: Received) -> None:
    old = make_channel(received.link.expect(CHILD))
    await start(old)
    received.link.forget(CHILD)
    new_child = Child("w1", 2)
    new = make_channel(received.link.expect(new_child))
    await start(new)
    received.messages.clear()
    old.send(UpdateStatus(1, WorkerState.READY))
    new.send(UpdateStatus(2, WorkerState.READY))
    await eventually_async(lambda: bool(received.messages), 5, "the new one is heard")
    assert received.messages == [(new_child, UpdateStatus(2, WorkerState.READY))]
    await stop(old)
    await stop(new)


@pytest.mark.parametrize("received", ["ipc"], indirect=True)
@pytest.mark.parametrize("frames", [[b"\xc1"], [b""], [codec.encode(HELLO), b"more"], [codec.encode(QueryStatus(1))]])
async def test_what_does_not_parse_is_a_violation(received: Received, frames: list[bytes]) -> None:
    bootstrap = received.link.expect(CHILD)
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    peer.set(zmq.ROUTING_ID, bootstrap.identity)
    peer.connect(bootstrap.address)
    peer.send_multipart(frames)
    await eventually_async(lambda: bool(received.violations), 5, "the violation is reported")
    assert received.violations[0][0] == CHILD
    assert received.violations[0][1].peer == "w1/1"
    assert received.messages == []
    peer.close(0)
    context.term()

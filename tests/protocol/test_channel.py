"""The child's channel over a real ipc ROUTER."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from protocol import codec
from protocol.bootstrap import Bootstrap, CurveKeys
from protocol.channel import Channel, ConnectionLost, RefusedByRouter
from protocol.chat import TextPrompt
from protocol.control import Cancel, QueryStatus, Shutdown, Sleep
from protocol.errors import ErrorKind, ExitCode
from protocol.generate import Failed, Generate
from protocol.handshake import PROTOCOL_VERSION, Hello, Refused, Welcome
from protocol.load import Dying
from protocol.status import UpdateStatus, WorkerState
from protocol.text import Tokenize
from tests.eventually import eventually

HELLO = Hello(PROTOCOL_VERSION, "0", 1, "worker")
TIMEOUT_MS = 5000


class RouterEnd:
    """A bare ROUTER with one peer."""

    def __init__(self, address: str) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.set(zmq.ROUTER_MANDATORY, 1)
        self.socket.set(zmq.LINGER, 0)
        self.address = address
        self.identity = b""

    def bind(self) -> None:
        self.socket.bind(self.address)
        self.address = self.socket.get(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()

    def receive(self) -> codec.FromChild:
        assert self.socket.poll(TIMEOUT_MS), "no frame"
        self.identity, frame = self.socket.recv_multipart()
        return codec.decode_from_child(frame, self.identity.decode())

    def send(self, message: codec.ToChild) -> None:
        self.send_bytes(codec.encode(message))

    def send_bytes(self, frame: bytes) -> None:
        self.socket.send_multipart([self.identity, frame])

    def close(self) -> None:
        self.socket.close(0)
        self.context.term()


@pytest.fixture
def router(tmp_path: Path) -> Iterator[RouterEnd]:
    end = RouterEnd(f"ipc://{tmp_path}/r.sock")
    end.bind()
    yield end
    end.close()


class Ends(list[ExitCode]):
    """Collects what would have ended the process."""

    def __call__(self, code: ExitCode) -> None:
        self.append(code)


def status(nonce: int) -> UpdateStatus:
    return UpdateStatus(revision=nonce + 1, state=WorkerState.EMPTY, answers=nonce)


def answered_by(router: RouterEnd, *replies: codec.ToChild) -> threading.Thread:
    def answer() -> None:
        assert router.receive() == HELLO
        for reply in replies:
            router.send(reply)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


@pytest.fixture
def ends() -> Ends:
    return Ends()


@pytest.fixture
def channel(router: RouterEnd, ends: Ends) -> Iterator[Channel]:
    channel = Channel(Bootstrap(router.address, "w3", 17), HELLO, status, ends)
    thread = answered_by(router, Welcome(PROTOCOL_VERSION))
    channel.start()
    thread.join()
    assert router.identity == b"w3/17"
    yield channel
    channel.close(linger=0.0)


def test_sorts_messages_into_lanes(router: RouterEnd, channel: Channel) -> None:
    router.send(Tokenize(1, "a"))
    router.send(Sleep())
    router.send(Tokenize(2, "b"))
    assert channel.control.wait(5)
    eventually(lambda: channel.work.requests() == (1, 2), 5, "both requests wait")
    assert channel.control.pop() == Sleep()
    assert channel.control.pop() is None
    assert channel.work.pop() == Tokenize(1, "a")
    assert len(channel.work) == 1


def test_answers_the_ping_without_the_lanes(router: RouterEnd, channel: Channel) -> None:
    router.send(QueryStatus(7))
    assert router.receive() == status(7)
    assert not channel.control.wait(0)
    assert not channel.work.wait(0)


def test_cancel_removes_waiting_work_and_answers(router: RouterEnd, channel: Channel) -> None:
    router.send(Generate(4, TextPrompt("x")))
    router.send(Generate(5, TextPrompt("y")))
    router.send(Cancel(4))
    answer = router.receive()
    assert isinstance(answer, Failed)
    assert (answer.request, answer.error.kind) == (4, ErrorKind.CANCELLED)
    assert channel.control.wait(5)
    assert channel.control.pop() == Cancel(4)
    assert channel.work.requests() == (5,)


def test_cancel_of_work_already_taken_is_left_to_the_worker(router: RouterEnd, channel: Channel) -> None:
    router.send(Tokenize(4, "x"))
    assert channel.work.wait(5)
    channel.work.pop()
    router.send(Cancel(4))
    assert channel.control.wait(5)
    router.send(QueryStatus(1))
    assert isinstance(router.receive(), UpdateStatus)  # no Failed came before it


def test_control_is_shown_at_once_to_whoever_cannot_read_the_lane(router: RouterEnd, ends: Ends) -> None:
    shown: list[object] = []
    channel = Channel(Bootstrap(router.address, "w", 1), HELLO, status, ends, shown.append)
    thread = answered_by(router, Welcome(PROTOCOL_VERSION), Tokenize(1, "a"), QueryStatus(2), Cancel(1), Shutdown())
    channel.start()
    thread.join()
    eventually(lambda: shown == [Cancel(1), Shutdown()], 5, "both were shown, work and pings were not")
    assert [channel.control.pop(), channel.control.pop()] == shown
    channel.close(0.0)


def test_sends_from_many_threads_arrive_whole(router: RouterEnd, channel: Channel) -> None:
    def send(base: int) -> None:
        for number in range(200):
            channel.send(UpdateStatus(base + number, WorkerState.READY))

    threads = [threading.Thread(target=send, args=(base,)) for base in (0, 1000, 2000, 3000)]
    for thread in threads:
        thread.start()
    seen = [router.receive() for _ in range(800)]
    for thread in threads:
        thread.join()
    revisions = [message.revision for message in seen if isinstance(message, UpdateStatus)]
    assert sorted(revisions) == [base + number for base in (0, 1000, 2000, 3000) for number in range(200)]
    for base in (0, 1000, 2000, 3000):
        own = [revision for revision in revisions if base <= revision < base + 1000]
        assert own == sorted(own)


def test_close_sends_what_is_queued(router: RouterEnd, channel: Channel) -> None:
    for number in range(50):
        channel.send(UpdateStatus(number, WorkerState.STOPPING))
    channel.close(linger=1.0)
    assert [router.receive() for _ in range(50)][-1] == UpdateStatus(49, WorkerState.STOPPING)


def test_refusal_is_raised(router: RouterEnd, ends: Ends) -> None:
    channel = Channel(Bootstrap(router.address, "w", 1), HELLO, status, ends)
    thread = answered_by(router, Refused("wrong version"))
    with pytest.raises(RefusedByRouter, match="wrong version"):
        channel.start()
    thread.join()
    assert ends == []


def test_no_router_is_an_error(tmp_path: Path, ends: Ends) -> None:
    channel = Channel(Bootstrap(f"ipc://{tmp_path}/none.sock", "w", 1), HELLO, status, ends)
    with pytest.raises(ConnectionLost):
        channel.start(timeout=5)
    assert ends == []


def test_silent_router_is_an_error(router: RouterEnd, ends: Ends) -> None:
    channel = Channel(Bootstrap(router.address, "w", 1), HELLO, status, ends)
    with pytest.raises(ConnectionLost, match="no answer"):
        channel.start(timeout=0.2)


def test_lost_connection_ends_the_child(router: RouterEnd, channel: Channel, ends: Ends) -> None:
    router.socket.close(0)
    eventually(lambda: ends == [ExitCode.CONNECTION_LOST], 5, "the child ends")


def test_garbage_ends_the_child_with_last_words(router: RouterEnd, channel: Channel, ends: Ends) -> None:
    router.send_bytes(b"\xc1garbage")
    last = router.receive()
    assert isinstance(last, Dying)
    assert last.reason.kind is ErrorKind.INTERNAL
    eventually(lambda: ends == [ExitCode.CRASH], 5, "the child ends")


def test_a_fault_in_status_ends_the_child(router: RouterEnd, ends: Ends) -> None:
    def broken(nonce: int) -> UpdateStatus:
        raise RuntimeError("broken status")

    channel = Channel(Bootstrap(router.address, "w", 1), HELLO, broken, ends)
    thread = answered_by(router, Welcome(PROTOCOL_VERSION), QueryStatus(1))
    channel.start()
    thread.join()
    eventually(lambda: ends == [ExitCode.CRASH], 5, "the child ends")
    channel.close(0.0)


def test_curve_over_loopback(ends: Ends) -> None:
    server_public, server_secret = zmq.curve_keypair()
    public, secret = zmq.curve_keypair()
    router = RouterEnd("tcp://127.0.0.1:*")
    router.socket.set(zmq.CURVE_SERVER, 1)
    router.socket.set(zmq.CURVE_SECRETKEY, server_secret)
    router.bind()
    keys = CurveKeys(server_public.decode(), public.decode(), secret.decode())
    channel = Channel(Bootstrap(router.address, "w", 1, curve=keys), HELLO, status, ends)
    thread = answered_by(router, Welcome(PROTOCOL_VERSION), Shutdown())
    channel.start()
    thread.join()
    assert channel.control.wait(5)
    assert channel.control.pop() == Shutdown()
    channel.close(0.0)
    router.close()


def test_a_wrong_server_key_connects_nobody(ends: Ends) -> None:
    _, server_secret = zmq.curve_keypair()
    wrong_public, _ = zmq.curve_keypair()
    public, secret = zmq.curve_keypair()
    router = RouterEnd("tcp://127.0.0.1:*")
    router.socket.set(zmq.CURVE_SERVER, 1)
    router.socket.set(zmq.CURVE_SECRETKEY, server_secret)
    router.bind()
    keys = CurveKeys(wrong_public.decode(), public.decode(), secret.decode())
    channel = Channel(Bootstrap(router.address, "w", 1, curve=keys), HELLO, status, ends)
    with pytest.raises(ConnectionLost):
        channel.start(timeout=2)
    assert not router.socket.poll(0)
    router.close()

"""`python -P -m worker` as a process of its own, over the real channel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import zmq

from protocol import codec
from protocol.bootstrap import Bootstrap, bootstrap_line
from protocol.chat import TextPrompt
from protocol.control import Cancel, QueryStatus, Shutdown
from protocol.errors import ErrorKind, ExitCode
from protocol.generate import Completed, Failed, Generate, StepOutput
from protocol.handshake import PROTOCOL_VERSION, Hello, Welcome
from protocol.load import Dying, Load, Loaded, LoadParameters, WorkerSettings
from protocol.sampling import SamplingParameters
from protocol.status import UpdateStatus, WorkerState
from tests import factory

pytestmark = pytest.mark.model

TIMEOUT_MS = 30_000
IDENTITY = b"w1/3"
Message = TypeVar("Message")


class Router:
    """A ROUTER socket and one worker behind it."""

    def __init__(self, folder: Path) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.set(zmq.LINGER, 0)
        self._socket.set(zmq.ROUTER_MANDATORY, 1)
        self._socket.set(zmq.RCVTIMEO, TIMEOUT_MS)
        address = f"ipc://{folder}/router.sock"
        self._socket.bind(address)
        environment = {"PATH": os.environ["PATH"], "OMP_WAIT_POLICY": "PASSIVE"}
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "worker"],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=folder,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(bootstrap_line(Bootstrap(address, "w1", 3, os.getpid())))
        self.process.stdin.flush()

    def send(self, message: codec.ToChild) -> None:
        self._socket.send_multipart([IDENTITY, codec.encode(message)])

    def receive(self, kind: type[Message]) -> Message:
        """The next message of a kind; others are passed over."""
        while True:
            identity, frame = self._socket.recv_multipart()
            assert identity == IDENTITY
            message = codec.decode_from_child(frame, "w1")
            if isinstance(message, kind):
                return message

    def load(self, path: Path) -> Loaded:
        assert self.receive(Hello).role == "worker"
        self.send(Welcome(PROTOCOL_VERSION))
        self.send(Load("tiny", LoadParameters(str(path), ctx_size=512), WorkerSettings(threads=1)))
        loaded = self.receive(Loaded)
        while self.receive(UpdateStatus).state is not WorkerState.READY:
            pass
        return loaded

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._socket.close()
        self._context.term()


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    router = Router(tmp_path)
    yield router
    router.close()


def generate(request: int, tokens: int) -> Generate:
    return Generate(request, TextPrompt("the cat"), SamplingParameters(temperature=0.0), max_tokens=tokens)


def test_it_loads_generates_and_ends(router: Router, tmp_path: Path) -> None:
    loaded = router.load(factory.language_model(tmp_path / "tiny.gguf"))
    assert loaded.info.engine.startswith("llama-cpp-python")
    router.send(generate(1, 8))
    assert router.receive(StepOutput).deltas[0].request == 1
    assert router.receive(Completed).usage.completion_tokens == 8
    router.send(Shutdown())
    assert router.process.wait(20) == ExitCode.OK


def test_it_answers_while_it_computes(router: Router, tmp_path: Path) -> None:
    router.load(factory.language_model(tmp_path / "tiny.gguf"))
    router.send(generate(1, 400))
    router.receive(StepOutput)
    router.send(QueryStatus(77))
    while (status := router.receive(UpdateStatus)).answers != 77:
        pass
    assert status.held == (1,)
    router.send(Cancel(1))
    assert router.receive(Failed).error.kind is ErrorKind.CANCELLED


def test_a_file_that_is_no_model_ends_it_with_a_reason(router: Router, tmp_path: Path) -> None:
    router.receive(Hello)
    router.send(Welcome(PROTOCOL_VERSION))
    router.send(Load("bad", LoadParameters(str(factory.not_a_model(tmp_path / "bad.gguf")))))
    assert router.receive(Dying).exit_code == ExitCode.LOAD_FAILED
    assert router.process.wait(20) == ExitCode.LOAD_FAILED


def test_it_ends_with_its_router(router: Router, tmp_path: Path) -> None:
    router.load(factory.language_model(tmp_path / "tiny.gguf"))
    assert router.process.stdin is not None
    router.process.stdin.close()
    assert router.process.wait(20) == ExitCode.PARENT_GONE


def test_a_term_signal_ends_it_at_once(router: Router) -> None:
    router.receive(Hello)
    router.process.terminate()
    assert router.process.wait(20) == -signal.SIGTERM

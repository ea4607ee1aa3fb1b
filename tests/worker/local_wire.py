"""A worker without a router: its lanes are filled by hand, and what it sends is gathered."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from protocol import codec
from protocol.channel import ControlMessage
from protocol.control import Cancel, QueryStatus, Shutdown
from protocol.errors import ErrorKind, ExitCode, WireError
from protocol.generate import Completed, Delta, Failed, Generate, Parked, StepOutput
from protocol.lanes import Lane, WorkLane
from protocol.load import Load, LoadParameters, VocabularyFacts, WorkerSettings
from protocol.status import UpdateStatus, WorkerState
from router.config.facts import read_facts
from worker.held import HeldRequests
from worker.llama_log import EngineLog
from worker.service import Worker
from worker.status import StatusBoard
from worker.step_watch import StepWatch

TIMEOUT = 60.0

Message = TypeVar("Message")


class LocalWire:
    """Sorts like the channel and passes every message through the codec."""

    def __init__(self, seen: Callable[[ControlMessage], None]) -> None:
        self.control: Lane[ControlMessage] = Lane()
        self.work: WorkLane[codec.Work] = WorkLane()
        self.sent: list[codec.FromChild] = []
        self._arrived = threading.Condition()
        self._seen = seen
        self._closed = False

    def send(self, message: codec.FromChild) -> None:
        decoded = codec.decode_from_child(codec.encode(message), "test")
        with self._arrived:
            self.sent.append(decoded)
            self._arrived.notify_all()

    def close(self) -> None:
        """The worker has ended: nothing more will come."""
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()

    def give(self, message: ControlMessage) -> None:
        """A control message arrives."""
        if isinstance(message, Cancel) and self.work.remove(message.request):
            self.send(Failed(message.request, WireError(ErrorKind.CANCELLED, "cancelled while it waited")))
        self.control.push(message)
        self._seen(message)

    def wait_for(self, find: Callable[[list[codec.FromChild]], Message | None], what: str) -> Message:
        """Block until `find` finds something among what was sent."""
        found: list[Message] = []

        def look() -> bool:
            result = find(self.sent)
            if result is not None:
                found.append(result)
            return bool(found) or self._closed

        with self._arrived:
            if not self._arrived.wait_for(look, TIMEOUT):
                raise AssertionError(f"not within {TIMEOUT} s: {what}; sent: {self.sent[-5:]}")
            assert found, f"the worker ended before: {what}; sent: {self.sent[-5:]}"
        return found[0]


class LocalWorker:
    """A whole worker in this process. End it with `stop`."""

    def __init__(self) -> None:
        self.held = HeldRequests()
        self.watch = StepWatch()
        self.wire = LocalWire(self.watch.seen)
        self.board = StatusBoard(lambda: (*self.held.all(), *self.wire.work.requests()))
        self.log = EngineLog()
        self.log.install()
        self.worker = Worker(self.wire, self.board, self.held, self.watch, self.log)
        self.exit_code: ExitCode | None = None
        self._numbers = iter(range(1, 1 << 30))
        self._thread = threading.Thread(target=self._run, name="decode", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.exit_code = self.worker.run()
        finally:
            self.wire.close()

    def load(self, parameters: LoadParameters, settings: WorkerSettings | None = None) -> None:
        """Load as the router has it done: with what the header says of the vocabulary."""
        facts = read_facts(Path(parameters.model_path))
        vocabulary = VocabularyFacts(facts.architecture, facts.n_vocab)
        self.wire.give(Load("test", parameters, settings or WorkerSettings(), vocabulary))
        self.wait_for_state(WorkerState.READY)

    def join(self) -> ExitCode:
        """Wait for the end of the decode thread."""
        self._thread.join(TIMEOUT)
        assert self.exit_code is not None, "the worker did not end"
        return self.exit_code

    def stop(self) -> ExitCode:
        self.wire.give(Shutdown())
        return self.join()

    def statuses(self) -> list[UpdateStatus]:
        return [message for message in self.wire.sent if isinstance(message, UpdateStatus)]

    def wait_for_state(self, state: WorkerState) -> UpdateStatus:
        def find(sent: list[codec.FromChild]) -> UpdateStatus | None:
            newest = next((m for m in reversed(sent) if isinstance(m, UpdateStatus)), None)
            return newest if newest is not None and newest.state is state else None

        return self.wire.wait_for(find, f"state {state}")

    def new_request(self) -> int:
        return next(self._numbers)

    def ask(self, work: codec.Work) -> None:
        self.wire.work.push(work)

    def answer(self, request: int) -> codec.Answer:
        """Block until a request has ended."""

        def find(sent: list[codec.FromChild]) -> codec.Answer | None:
            return next((m for m in sent if isinstance(m, codec.Answer) and m.request == request), None)

        return self.wire.wait_for(find, f"the end of request {request}")

    def completed(self, request: int) -> Completed:
        answer = self.answer(request)
        assert isinstance(answer, Completed), answer
        return answer

    def failed(self, request: int) -> WireError:
        answer = self.answer(request)
        assert isinstance(answer, Failed), answer
        return answer.error

    def parked(self, request: int) -> Parked:
        answer = self.answer(request)
        assert isinstance(answer, Parked), answer
        return answer

    def deltas(self, request: int, index: int = 0) -> list[Delta]:
        steps = [message for message in self.wire.sent if isinstance(message, StepOutput)]
        return [d for step in steps for d in step.deltas if d.request == request and d.index == index]

    def text(self, request: int, index: int = 0) -> str:
        return "".join(delta.text for delta in self.deltas(request, index))

    def wait_for_tokens(self, request: int, count: int) -> None:
        """Block until a request has sent so many tokens."""
        self.wire.wait_for(
            lambda sent: sum(delta.n_tokens for delta in self.deltas(request)) >= count or None,
            f"{count} tokens of request {request}",
        )

    def generate(self, work: Generate) -> tuple[str, Completed]:
        """Run one request to its end."""
        self.ask(work)
        completed = self.completed(work.request)
        return self.text(work.request), completed

    def query(self) -> UpdateStatus:
        return self.board.snapshot(QueryStatus(1).nonce)

"""A worker without an engine, on the real channel, that misbehaves on demand.

A generation of n tokens is the text `0 1 2 … n-1 `, so that a reader sees at once whether anything is missing, doubled
or begun anew. Faults are named in `--fault=`, in `FAKE_FAULT`, or behind `fake:` in the path of the model to load,
several with commas. `name@3` has its fault only in the first three incarnations of the child.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable

from protocol import codec
from protocol.bootstrap import read_bootstrap
from protocol.channel import Channel
from protocol.chat import ChatPrompt, MixedPrompt, TextPrompt
from protocol.control import Cancel, Park, SetThreads, Shutdown, Sleep, Wakeup
from protocol.embed import Embed, Embedded
from protocol.errors import ErrorKind, ExitCode, WireError
from protocol.generate import ChoiceEnd, Completed, Delta, Failed, Generate, Parked, ResumePoint, StepOutput, Usage
from protocol.handshake import PROTOCOL_VERSION, Hello
from protocol.load import Dying, Load, Loaded, ModelInfo
from protocol.parent_watch import die_with_parent, watch_parent
from protocol.status import Counters, DeviceMemory, MemoryUse, SlotStatus, UpdateStatus, WorkerState
from protocol.text import (
    ApplyTemplate,
    CountTokens,
    Detokenize,
    Detokenized,
    TemplateApplied,
    Tokenize,
    Tokenized,
    TokensCounted,
)

FAULTS = frozenset(
    {
        "crash_at_start",
        "crash_on_load",
        "load_error",
        "load_out_of_memory",
        "crash_mid_stream",
        "exit_on_request",
        "hang_at_start",
        "hang_on_load",
        "busy_load",
        "ignore_shutdown",
        "ignore_sigterm",
        "ignore_sigabrt",
        "stop_answering_query",
        "stuck_decode",
        "slow_load",
        "slow_tokens",
        "decline_sleep",
        "never_wakes",
        "lie_about_held",
        "wrong_protocol_version",
        "garbage_frames",
        "huge_stderr",
        "dies_silently",
    }
)
POISON = "please exit"
"""Words in a prompt that make `exit_on_request` exit."""
TOKENS = 8
LOOK = 0.002
STEP = 0.002
SLOW_STEP = 0.05
LOAD_STEPS = 5
LOAD_STEP = 0.002
SLOW_LOAD_STEP = 0.3
FLOOD = 20 << 20


class Sequence:
    """A running generation."""

    def __init__(self, work: Generate) -> None:
        self.work = work
        self.n_done = len(work.resume.generated[0]) if work.resume is not None and work.resume.generated else 0
        self.n_limit = work.max_tokens if work.max_tokens >= 0 else TOKENS


class FakeWorker:
    def __init__(self, faults: Iterable[str]) -> None:
        self.bootstrap = read_bootstrap(0)
        self.faults = self._chosen(faults)
        die_with_parent(self.bootstrap.parent)
        watch_parent(0)
        version = 99 if "wrong_protocol_version" in self.faults else PROTOCOL_VERSION
        hello = Hello(version, "0", os.getpid(), "worker")
        self.channel = Channel(self.bootstrap, hello, self.status)
        self.lock = threading.Lock()
        self.state = WorkerState.EMPTY
        self.revision = 0
        self.step = 0
        self.progress = 0.0
        self.threads = 0
        self.slots = 4
        self.running: dict[int, Sequence] = {}
        self.reason = ""
        self.load: Load | None = None

    def _chosen(self, names: Iterable[str]) -> set[str]:
        chosen: set[str] = set()
        for name in names:
            fault, _, incarnations = name.partition("@")
            if not fault:
                continue
            if fault not in FAULTS:
                raise SystemExit(f"no such fault: {fault}")
            if not incarnations or self.bootstrap.epoch <= int(incarnations):
                chosen.add(fault)
        return chosen

    def has(self, fault: str) -> bool:
        return fault in self.faults

    # Status

    def status(self, nonce: int) -> UpdateStatus:
        if nonce and self.has("stop_answering_query"):
            threading.Event().wait()
        with self.lock:
            self.revision += 1
            held = () if self.has("lie_about_held") else (*self.running, *self.channel.work.requests())
            loaded = self.state is WorkerState.READY
            return UpdateStatus(
                self.revision,
                self.state,
                answers=nonce,
                progress=self.progress,
                stage="text_model" if self.state in (WorkerState.LOADING, WorkerState.WAKING) else "",
                step=self.step,
                slots=self._slots(),
                held=held,
                threads=self.threads,
                memory=MemoryUse(30 << 20, 20 << 20, (DeviceMemory("host", 10, 20, 30),) if loaded else ()),
                counters=Counters(decode_steps=self.step),
                reason=self.reason,
            )

    def _slots(self) -> tuple[SlotStatus, ...]:
        busy = [
            SlotStatus(index, "decode", sequence.work.request, n_decoded=sequence.n_done)
            for index, sequence in enumerate(self.running.values())
        ]
        return (*busy, *(SlotStatus(index, "idle") for index in range(len(busy), self.slots)))

    def enter(self, state: WorkerState, reason: str = "") -> None:
        with self.lock:
            self.state = state
            self.reason = reason
        self.tell()

    def tell(self) -> None:
        self.channel.send(self.status(0))

    # Life

    def run(self) -> None:
        if self.has("crash_at_start"):
            complain("fake: crashing at start")
            os._exit(ExitCode.CRASH)
        if self.has("hang_at_start"):
            threading.Event().wait()
        if self.has("ignore_sigterm"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self.has("ignore_sigabrt"):
            signal.signal(signal.SIGABRT, signal.SIG_IGN)
        self.channel.start()
        if self.has("garbage_frames"):
            # No public way leads to a frame that is no message.
            self.channel._outgoing.append(b"\xc1 this is no message")
        self.tell()
        while True:
            # One thread reads both lanes here, and there is no waiting for both.
            while not (self.running or self.channel.work or self.channel.control.wait(LOOK)):
                pass
            self.take_control()
            self.take_work()
            self.decode()

    def take_control(self) -> None:
        while (message := self.channel.control.pop()) is not None:
            match message:
                case Load():
                    self.do_load(message)
                case Cancel():
                    self.end(message.request, Failed(message.request, WireError(ErrorKind.CANCELLED, "cancelled")))
                case Park():
                    self.park(message.request)
                case Sleep():
                    self.sleep()
                case Wakeup():
                    self.wake()
                case SetThreads():
                    self.threads = message.threads
                case Shutdown():
                    self.shut_down()

    def take_work(self) -> None:
        while len(self.running) < self.slots and (work := self.channel.work.pop()) is not None:
            if self.has("dies_silently"):
                os._exit(0)
            if self.has("lie_about_held"):
                continue
            if isinstance(work, Generate):
                if self.state is WorkerState.SLEEPING:
                    self.wake()
                if self.has("exit_on_request") and POISON in words_of(work):
                    os._exit(ExitCode.CRASH)
                self.running[work.request] = Sequence(work)
                self.tell()
            else:
                self.channel.send(answer_of(work))

    def decode(self) -> None:
        if not self.running or (self.has("stuck_decode") and self.step >= 2):
            if self.running:
                self.channel.control.wait()
            return
        self.pause(SLOW_STEP if self.has("slow_tokens") else STEP)
        if not self.running:
            return
        self.step += 1
        deltas = []
        for request, sequence in list(self.running.items()):
            if sequence.n_done < sequence.n_limit:
                deltas.append(Delta(request, f"{sequence.n_done} "))
                sequence.n_done += 1
        self.channel.send(StepOutput(self.step, tuple(deltas)))
        if self.has("crash_mid_stream") and self.step >= 3:
            # What was sent is on its way: the test is about a stream that has begun.
            self.channel.close(linger=1.0)
            os.kill(os.getpid(), signal.SIGSEGV)
        for request, sequence in list(self.running.items()):
            if sequence.n_done >= sequence.n_limit:
                usage = Usage(1, sequence.n_done)
                self.end(request, Completed(request, (ChoiceEnd(0, "limit", n_tokens=sequence.n_done),), usage))

    def end(self, request: int, answer: codec.Answer) -> None:
        if self.running.pop(request, None) is not None:
            self.channel.send(answer)
            self.tell()

    def park(self, request: int) -> None:
        sequence = self.running.get(request)
        if sequence is not None:
            self.end(request, Parked(request, ResumePoint((tuple(range(sequence.n_done)),))))

    def do_load(self, load: Load) -> None:
        self.load = load
        _, _, named = load.parameters.model_path.partition("fake:")
        self.faults |= self._chosen(named.split(","))
        self.slots = load.parameters.slots
        complain(f"fake: loading {load.name}")
        self.enter(WorkerState.LOADING)
        if self.has("crash_on_load"):
            complain("fake: the file is bad")
            os._exit(ExitCode.CRASH)
        if self.has("load_error"):
            self.die(WireError(ErrorKind.LOAD_FAILED, "fake: not a model"), ExitCode.LOAD_FAILED)
        if self.has("load_out_of_memory"):
            self.die(WireError(ErrorKind.LOAD_FAILED, "fake: too large"), ExitCode.OUT_OF_MEMORY)
        if self.has("huge_stderr"):
            os.write(2, b"x" * 100_000 + b"\n")
            for _ in range(FLOOD // 100):
                os.write(2, b"y" * 99 + b"\n")
        if self.has("hang_on_load"):
            threading.Event().wait()
        if self.has("busy_load"):
            until = time.monotonic() + 4.0
            while time.monotonic() < until:
                sum(range(100_000))
        self.fill()

    def fill(self) -> None:
        """The part of a load that sees control messages."""
        for number in range(LOAD_STEPS):
            self.pause(SLOW_LOAD_STEP if self.has("slow_load") else LOAD_STEP)
            self.progress = (number + 1) / LOAD_STEPS
            self.tell()
        assert self.load is not None
        info = ModelInfo("fake", n_ctx=4096, n_ctx_train=4096, n_vocab=100, slots=self.slots, engine="fake")
        self.channel.send(Loaded(self.load.name, info))
        self.enter(WorkerState.READY)

    def sleep(self) -> None:
        if self.running or len(self.channel.work) or self.has("decline_sleep"):
            self.enter(WorkerState.READY, "it still holds work")
        else:
            self.enter(WorkerState.SLEEPING)

    def wake(self) -> None:
        if self.state is not WorkerState.SLEEPING:
            self.tell()
            return
        if self.has("never_wakes"):
            return
        self.enter(WorkerState.WAKING)
        self.fill()

    def shut_down(self) -> None:
        if self.has("ignore_shutdown") or self.has("ignore_sigterm"):
            return
        self.enter(WorkerState.STOPPING)
        for request in [*self.running]:
            self.end(request, Failed(request, WireError(ErrorKind.CANCELLED, "the worker is stopping")))
        self.channel.close(linger=1.0)
        os._exit(ExitCode.OK)

    def die(self, reason: WireError, code: ExitCode) -> None:
        self.channel.send(Dying(reason, code))
        self.channel.close(linger=1.0)
        os._exit(code)

    def pause(self, seconds: float) -> None:
        """Take time, and heed a shutdown or a cancel that comes meanwhile."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.channel.control.wait(left):
                self.take_control()


def words_of(work: Generate) -> str:
    match work.prompt:
        case TextPrompt():
            return work.prompt.text
        case MixedPrompt():
            return "".join(part for part in work.prompt.parts if isinstance(part, str))
        case ChatPrompt():
            return "".join(str(message.content) for message in work.prompt.messages)
        case _:
            return work.prompt.prompt


def answer_of(work: codec.Work) -> codec.Answer:
    """The answer to everything that is no generation."""
    match work:
        case Tokenize():
            return Tokenized(work.request, tuple(work.text.encode()))
        case Detokenize():
            return Detokenized(work.request, bytes(work.tokens).decode(errors="replace"))
        case ApplyTemplate():
            return TemplateApplied(work.request, str(work.chat.messages))
        case CountTokens():
            return TokensCounted(work.request, 3)
        case Embed():
            return Embedded(work.request, tuple((b"\0\0\x80?",) for _ in work.inputs), tuple(1 for _ in work.inputs))
        case _:
            return Failed(work.request, WireError(ErrorKind.NOT_SUPPORTED, "the fake worker cannot do this"))


def complain(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", default=os.environ.get("FAKE_FAULT", ""))
    FakeWorker(parser.parse_args().fault.split(",")).run()


if __name__ == "__main__":
    main()

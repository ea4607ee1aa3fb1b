"""An owner with fake workers: everything below HTTP, with real processes and real sockets."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from protocol.chat import TextPrompt
from protocol.codec import Work
from protocol.generate import Generate
from protocol.load import Load, LoadParameters
from router.scheduling.events import Child, LoadAsked, RequestAnswered, RequestArrived, RequestLeft
from router.scheduling.model import ModelEntry, Policy
from router.scheduling.scheduler import Scheduler
from router.scheduling.states import State
from router.supervision.environment import worker_environment
from router.supervision.nursery import Nursery
from router.supervision.owner import Observer, Owner
from router.supervision.process import Command
from router.supervision.runtime import RuntimeFolder
from router.supervision.state import StateFolder
from router.transport.stream import RequestStream
from tests.eventually import eventually_async
from tests.fakes.encoder import TextEncoder

ROOT = Path(__file__).parents[2]
PROMPT_START = 10.0
"""Seconds in which a process starts on a busy machine."""
FAST = Policy(
    models_max=2, spare_workers=0, threads=2, backoff_first=0.05, backoff_max=0.2, drain_timeout=0.5, max_swap_wait=0.2
)


def fake_command(extra: Mapping[str, str], fault: str = "") -> Command:
    """Runs the fake worker; `-P` would hide this repository's tests from it, hence the path."""
    environment = worker_environment(os.environ, extra.items())
    environment["PYTHONPATH"] = str(ROOT)
    argv = (sys.executable, "-P", "-m", "tests.fakes.worker", *((f"--fault={fault}",) if fault else ()))
    return Command("worker", argv, tuple(sorted(environment.items())))


class FakePlans:
    """Models by key; the value names faults."""

    def __init__(self, models: Mapping[str, str], **traits: object) -> None:
        self.models = dict(models)
        self.environments: dict[str, dict[str, str]] = {}
        self._traits = traits

    def load(self, key: str) -> Load:
        return Load(key, LoadParameters(f"fake:{self.models[key]}"))

    def environment(self, key: str) -> dict[str, str]:
        return self.environments.get(key, {})

    def entries(self) -> tuple[ModelEntry, ...]:
        return tuple(
            ModelEntry(**{"key": key, "names": (key,), "stop_timeout": 2.0, **self._traits}) for key in self.models
        )


class Herd:
    """Started by `open`; `close` must be awaited."""

    def __init__(
        self,
        folder: Path,
        plans: FakePlans,
        policy: Policy = FAST,
        fault: str = "",
        state: StateFolder | None = None,
        over_tcp: bool = False,
        observe: Observer | None = None,
    ) -> None:
        self.plans = plans
        self.policy = policy
        self.runtime = RuntimeFolder(folder / "run")
        self.nursery = Nursery(self.runtime, over_tcp)
        self.owner = Owner(
            Scheduler(policy, random.Random(1)),
            self.nursery,
            state,
            lambda extra: fake_command(extra, fault),
            look_interval=0.1,
            observe=observe,
        )
        self.requests = 0
        self._closed = False

    async def open(self) -> None:
        await self.owner.open()
        self.owner.configure(self.plans, self.policy)
        await eventually_async(lambda: len(self.owner.models()) == len(self.plans.models), 5, "models are configured")

    async def close(self) -> None:
        await self.owner.close(drain=0.0)
        if not self._closed:
            self._closed = True
            self.runtime.close()

    def submit(self, model: str, work: Work, stream: RequestStream, digest: str = "") -> None:
        self.owner.submit(work, stream, RequestArrived(work.request, model, digest=digest))

    def generate(self, model: str, tokens: int = 8, prompt: str = "hello", digest: str = "") -> RequestStream:
        self.requests += 1
        number = self.requests
        stream = RequestStream(number, TextEncoder(), lambda: self.owner.post(RequestAnswered(number)))
        self.submit(model, Generate(number, TextPrompt(prompt), max_tokens=tokens), stream, digest)
        return stream

    def leave(self, stream: RequestStream) -> None:
        self.owner.post(RequestLeft(stream.request))

    async def load(self, model: str) -> Child:
        """Load and wait until it is there."""
        self.owner.post(LoadAsked(model))
        await self.reaches(model, State.READY)
        child = self.child(model)
        assert child is not None
        return child

    async def reaches(self, model: str, state: State, timeout: float = PROMPT_START) -> None:
        await eventually_async(lambda: self.state(model) is state, timeout, f"{model} is {state}")

    def state(self, model: str) -> State:
        view = self.owner.view(model)
        assert view is not None
        return view.state

    def child(self, model: str) -> Child | None:
        view = self.owner.view(model)
        assert view is not None
        return view.child

    def pid(self, model: str) -> int:
        return self.owner.pid(model)


async def read_all(stream: RequestStream, offset: int = 0) -> str:
    whole = b""
    while data := await stream.read(offset + len(whole)):
        whole += data
    return whole.decode()


async def ended_within(stream: RequestStream, seconds: float) -> None:
    """Assert that a stream ends in time."""
    start = time.monotonic()
    await eventually_async(lambda: stream.ended, seconds, f"stream ended (after {time.monotonic() - start:.2f} s)")


def counted(tokens: int) -> str:
    """The whole answer of the fake worker."""
    return "<" + "".join(f"{number} " for number in range(tokens)) + ">"

"""The task itself, when the scheduler fails it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from protocol.chat import TextPrompt
from protocol.errors import ErrorKind
from protocol.generate import Generate
from router.scheduling.effects import Effect
from router.scheduling.events import Event, RequestArrived, TimerFired
from router.scheduling.model import Policy
from router.scheduling.scheduler import Scheduler
from router.scheduling.states import IllegalTransition, State, Trigger
from router.supervision.nursery import Nursery
from router.supervision.owner import Owner
from router.supervision.runtime import RuntimeFolder
from router.transport.stream import Outcome, RequestStream
from tests.eventually import eventually_async
from tests.fakes.encoder import TextEncoder


class FailingScheduler(Scheduler):
    """Raises what it is told to at the next timer."""

    def __init__(self) -> None:
        super().__init__(Policy(spare_workers=0))
        self.failure: Exception | None = None

    def handle(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, TimerFired) and self.failure is not None:
            raise self.failure
        return super().handle(event, now) if not isinstance(event, RequestArrived) else []


@pytest.fixture
def scheduler() -> FailingScheduler:
    return FailingScheduler()


@pytest.fixture
async def owner(tmp_path: Path, scheduler: FailingScheduler) -> AsyncIterator[Owner]:
    runtime = RuntimeFolder(tmp_path / "run")
    owner = Owner(scheduler, Nursery(runtime))
    await owner.open()
    yield owner
    await owner.close(drain=0.0)
    runtime.close()


def submit(owner: Owner, number: int) -> RequestStream:
    stream = RequestStream(number, TextEncoder())
    owner.submit(Generate(number, TextPrompt("x")), stream, RequestArrived(number, "m"))
    return stream


async def test_a_fault_of_the_scheduler_ends_every_request_and_is_seen(
    owner: Owner, scheduler: FailingScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    running = submit(owner, 1)
    scheduler.failure = RuntimeError("a fault of ours")
    owner.post(TimerFired())
    assert await running.outcome(5) is Outcome.FAILED
    assert running.failure is not None
    assert running.failure.kind is ErrorKind.INTERNAL
    await eventually_async(lambda: not owner.alive, 1, "the task has ended")
    assert "a fault of ours" in caplog.text
    late = submit(owner, 2)
    assert await late.outcome() is Outcome.FAILED
    assert late.failure is not None
    assert late.failure.kind is ErrorKind.UNAVAILABLE


async def test_an_illegal_event_changes_nothing(
    owner: Owner, scheduler: FailingScheduler, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler.failure = IllegalTransition("m", State.READY, Trigger.LOAD, ())
    owner.post(TimerFired())
    await eventually_async(lambda: "an event that cannot be" in caplog.text, 1, "it is logged")
    assert owner.alive

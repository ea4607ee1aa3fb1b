"""Models come, sleep, wake, crash, hang and go, with real processes."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import msgspec
import pytest

from protocol.errors import ErrorKind
from protocol.text import Tokenize
from router.scheduling.events import ExitReason, RequestArrived, UnloadAsked
from router.scheduling.states import State
from router.supervision.news import News
from router.supervision.state import Residents, StateFolder
from router.supervision.worker_table import WorkerRecord
from router.transport.stream import Outcome, RequestStream
from tests.eventually import eventually_async
from tests.fakes.encoder import BodyEncoder
from tests.fakes.herd import FAST, counted, ended_within, read_all
from tests.fakes.worker import POISON
from tests.integration.conftest import MakeHerd

ONE_PLACE = msgspec.structs.replace(FAST, models_max=1)
QUICKLY_WEDGED = msgspec.structs.replace(FAST, wedge_after=0.6, query_interval=0.2)
SPARE = msgspec.structs.replace(FAST, models_max=1, spare_workers=1)


@pytest.mark.parametrize("fault", ["slow_tokens@1,stop_answering_query", "stuck_decode"])
async def test_a_worker_that_hangs_is_replaced_and_its_requests_are_served(make_herd: MakeHerd, fault: str) -> None:
    herd = await make_herd({"a": f"{fault}@1"}, policy=QUICKLY_WEDGED)
    child = await herd.load("a")
    stream = herd.generate("a", tokens=20)
    await ended_within(stream, 15)
    assert await read_all(stream) == counted(20)
    assert herd.child("a") != child


async def test_a_stopped_worker_is_found_and_replaced(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": ""}, policy=QUICKLY_WEDGED)
    await herd.load("a")
    os.kill(herd.pid("a"), signal.SIGSTOP)
    streams = [herd.generate("a") for _ in range(6)]
    assert await asyncio.wait_for(asyncio.gather(*map(read_all, streams)), 15) == [counted(8)] * 6
    view = herd.owner.view("a")
    assert view is not None
    assert view.exit is not None
    assert view.exit.reason is ExitReason.WEDGED


@pytest.mark.parametrize(
    ("at_start", "on_load"), [("", "hang_on_load@1"), pytest.param("hang_at_start@1", "", marks=pytest.mark.slow)]
)
async def test_a_start_that_hangs_is_found(make_herd: MakeHerd, at_start: str, on_load: str) -> None:
    policy = msgspec.structs.replace(QUICKLY_WEDGED, wedge_after=1.5)
    herd = await make_herd({"a": on_load}, policy=policy, fault=at_start)
    assert await asyncio.wait_for(read_all(herd.generate("a")), 20) == counted(8)


@pytest.mark.slow
async def test_a_load_that_reports_nothing_but_works_is_left_alone(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "busy_load"}, policy=msgspec.structs.replace(QUICKLY_WEDGED, wedge_after=2.0))
    stream = herd.generate("a")
    await herd.reaches("a", State.LOADING)
    child = herd.child("a")
    assert await asyncio.wait_for(read_all(stream), 30) == counted(8)
    assert herd.child("a") == child


async def test_a_request_that_its_worker_forgot_is_ended_or_served(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "lie_about_held"}, policy=msgspec.structs.replace(QUICKLY_WEDGED, wedge_after=60.0))
    stream = herd.generate("a")
    await ended_within(stream, 15)
    assert await stream.outcome() is Outcome.FAILED


async def test_sleep_and_wakeup(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": ""}, traits={"sleep_idle": 0.1})
    child = await herd.load("a")
    await herd.reaches("a", State.SLEEPING)
    assert await read_all(herd.generate("a")) == counted(8)
    assert herd.child("a") == child
    await herd.reaches("a", State.SLEEPING)


async def test_looking_does_not_wake_and_work_without_weights_does_not_either(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": ""}, traits={"sleep_idle": 0.1})
    await herd.load("a")
    await herd.reaches("a", State.SLEEPING)
    assert herd.owner.status("a") is not None
    assert herd.owner.info("a") is not None
    stream = RequestStream(700, BodyEncoder())
    herd.owner.submit(Tokenize(700, "x"), stream, RequestArrived(700, "a", needs_weights=False))
    assert await read_all(stream) == "<>"
    assert herd.state("a") is State.SLEEPING


async def test_a_worker_that_declines_to_sleep_goes_on(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "decline_sleep"}, traits={"sleep_idle": 0.05})
    await herd.load("a")
    await eventually_async(
        lambda: (status := herd.owner.status("a")) is not None and status.reason == "it still holds work", 5, "declined"
    )
    assert await read_all(herd.generate("a")) == counted(8)


async def test_a_worker_that_never_wakes_is_replaced(make_herd: MakeHerd) -> None:
    policy = msgspec.structs.replace(QUICKLY_WEDGED, wedge_after=1.5)
    herd = await make_herd({"a": "never_wakes@1"}, policy=policy, traits={"sleep_idle": 0.1})
    await herd.load("a")
    await herd.reaches("a", State.SLEEPING)
    assert await asyncio.wait_for(read_all(herd.generate("a", tokens=30)), 20) == counted(30)


async def test_no_request_is_lost_around_the_transition(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": ""}, traits={"sleep_idle": 0.01})
    await herd.load("a")
    chance = random.Random(3)
    for _ in range(40):
        pause = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(chance.uniform(0.0, 0.03), pause.set_result, None)
        await pause
        streams = [herd.generate("a", tokens=2) for _ in range(chance.randrange(1, 4))]
        answers = await asyncio.wait_for(asyncio.gather(*map(read_all, streams)), 5)
        assert answers == [counted(2)] * len(streams)


async def test_a_spare_becomes_the_next_worker(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "", "b": ""}, policy=SPARE)
    assert await read_all(herd.generate("a")) == counted(8)
    await eventually_async(lambda: any(_is_spare(record) for record in herd.owner.workers()), 10, "a spare is ready")
    spare = next(record.child for record in herd.owner.workers() if _is_spare(record))
    assert await read_all(herd.generate("b")) == counted(8)
    assert herd.child("b") == spare
    await eventually_async(lambda: any(_is_spare(record) for record in herd.owner.workers()), 10, "it is replaced")


def _is_spare(record: WorkerRecord) -> bool:
    return record.model is None and record.connected


async def test_a_model_that_crashes_again_and_again_cools_down(make_herd: MakeHerd) -> None:
    policy = msgspec.structs.replace(FAST, cooldown_failures=3, cooldown=60.0)
    herd = await make_herd({"a": "crash_on_load", "b": ""}, policy=policy)
    for _ in range(3):
        stream = herd.generate("a")
        await ended_within(stream, 15)
        if herd.state("a") is State.FAILED:
            break
    await herd.reaches("a", State.FAILED, 15)
    view = herd.owner.view("a")
    assert view is not None
    assert view.failed
    assert "the file is bad" in view.reason
    refused = herd.generate("a")
    await ended_within(refused, 0.5)
    assert refused.failure is not None
    assert refused.failure.retry_after > 30
    assert await read_all(herd.generate("b")) == counted(8)


async def test_a_request_that_kills_its_worker_twice_is_failed_and_remembered(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "exit_on_request"})
    for _ in range(2):
        stream = herd.generate("a", prompt=POISON, digest="poison")
        await ended_within(stream, 15)
        assert stream.failure is not None
        assert stream.failure.kind is ErrorKind.WORKER_DIED
    assert await read_all(herd.generate("a")) == counted(8)
    view = herd.owner.view("a")
    assert view is not None
    assert view.failures == 0


async def test_silent_death_under_work(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "dies_silently@1"})
    assert await asyncio.wait_for(read_all(herd.generate("a")), 15) == counted(8)


async def test_a_long_answer_is_parked_for_another_model_and_arrives_whole(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "slow_tokens", "b": ""}, policy=ONE_PLACE)
    long = herd.generate("a", tokens=60)
    seen = await long.read(0)
    assert await asyncio.wait_for(read_all(herd.generate("b")), 20) == counted(8)
    assert not long.ended
    whole = seen.decode() + await asyncio.wait_for(read_all(long, len(seen)), 30)
    assert whole == counted(60)


async def test_unload_lets_running_requests_end(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "slow_tokens"})
    stream = herd.generate("a", tokens=20)
    await stream.outcome()
    herd.owner.post(UnloadAsked("a"))
    assert await read_all(stream) == counted(20)
    await herd.reaches("a", State.UNLOADED, 5)
    forced = herd.generate("a", tokens=1000)
    await forced.outcome()
    herd.owner.post(UnloadAsked("a", force=True))
    await ended_within(forced, 2)


async def test_what_was_resident_comes_back_after_an_unclean_end(make_herd: MakeHerd, tmp_path: Path) -> None:
    state = StateFolder(tmp_path / "state")
    state.save_residents(Residents(("b", "gone"), clean=False))
    herd = await make_herd({"a": "", "b": ""}, state=StateFolder(tmp_path / "state"))
    await herd.reaches("b", State.READY)
    assert herd.state("a") is State.UNLOADED
    await herd.load("a")
    assert set(StateFolder(tmp_path / "state").residents_to_restore()) == {"a", "b"}
    await herd.close()
    assert StateFolder(tmp_path / "state").residents_to_restore() == ()


async def test_memory_is_measured_and_kept(make_herd: MakeHerd, tmp_path: Path) -> None:
    herd = await make_herd({"a": ""}, state=StateFolder(tmp_path / "state"))
    await herd.load("a")
    (need,) = StateFolder(tmp_path / "state").measured("a")
    assert (need.device, need.private, need.measured) == ("host", 20 << 20, True)


async def test_news_tell_a_whole_life(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "slow_load"})
    subscription = herd.owner.news.subscribe()
    await herd.load("a")
    herd.owner.post(UnloadAsked("a"))
    await herd.reaches("a", State.UNLOADED, 5)
    told: list[News] = []
    while (news := await subscription.next(0.0)) is not None:
        told.append(news)
    words = [news.view.status for news in told if news.view is not None]
    assert [word for index, word in enumerate(words) if index == 0 or words[index - 1] != word] == [
        "loading",
        "loaded",
        "unloaded",
    ]
    loading = [news.view.progress for news in told if news.view is not None and news.view.status == "loading"]
    assert loading == sorted(loading)
    assert len(set(loading)) > 2
    assert next(news.info for news in told if news.view is not None and news.view.status == "loaded") is not None
    assert [news.id for news in told] == list(range(told[0].id, told[0].id + len(told)))


async def test_the_end_lets_streams_finish_within_the_limit(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "slow_tokens"})
    short, long = herd.generate("a", tokens=10), herd.generate("a", tokens=1000)
    assert await long.outcome() is Outcome.OUTPUT
    assert await short.outcome() is Outcome.OUTPUT
    seen = await long.read(0)
    await herd.owner.close(drain=1.5)
    assert await read_all(short) == counted(10)
    rest = await read_all(long, len(seen))
    assert rest.endswith("!")
    late = herd.generate("a")
    assert await late.outcome() is Outcome.FAILED

"""Requests through real processes over ipc."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest

from protocol.chat import TextPrompt
from protocol.embed import Embed
from protocol.errors import ErrorKind
from protocol.generate import Generate
from protocol.text import Tokenize
from router.scheduling.events import UnloadAsked
from router.scheduling.model import Policy
from router.scheduling.states import State
from router.transport.stream import Outcome, RequestStream
from tests.eventually import eventually_async
from tests.fakes.encoder import BodyEncoder
from tests.fakes.herd import FAST, FakePlans, Herd, counted, ended_within, read_all
from tests.integration.conftest import MakeHerd


async def test_a_request_loads_its_model_and_is_answered(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": ""})
    stream = herd.generate("a", tokens=20)
    assert await read_all(stream) == counted(20)
    assert herd.state("a") is State.READY
    info = herd.owner.info("a")
    assert info is not None
    assert info.engine == "fake"
    await eventually_async(
        lambda: (status := herd.owner.status("a")) is not None and status.step >= 20,
        5,
        "the status behind the answer has come",
    )


async def test_many_at_once_share_one_worker(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": ""})
    streams = [herd.generate("a", tokens=10) for _ in range(16)]
    assert await asyncio.gather(*map(read_all, streams)) == [counted(10)] * 16
    assert len(herd.owner.workers()) == 1


async def test_two_models_take_turns_in_one_place(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "", "b": ""}, policy=_one_place())
    for _ in range(2):
        for model in ("a", "b"):
            assert await read_all(herd.generate(model)) == counted(8)
            assert herd.state(model) is State.READY
    assert [herd.state("a"), herd.state("b")].count(State.READY) == 1


async def test_work_that_is_no_generation(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": ""})
    tokens = RequestStream(1001, BodyEncoder())
    herd.submit("a", Tokenize(1001, "hi"), tokens)
    vectors = RequestStream(1002, BodyEncoder())
    herd.submit("a", Embed(1002, (TextPrompt("x"),)), vectors)
    assert await read_all(tokens) == "<>"
    assert await read_all(vectors) == "<>"


async def test_a_client_that_leaves_frees_its_slot(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "slow_tokens"})
    stream = herd.generate("a", tokens=10_000)
    await stream.outcome()
    herd.leave(stream)
    await eventually_async(
        lambda: (status := herd.owner.status("a")) is not None and not status.held, 2, "the slot is free"
    )
    view = herd.owner.view("a")
    assert view is not None
    assert (view.running, view.waiting) == (0, 0)


async def test_an_unknown_model_is_refused(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": ""})
    stream = herd.generate("no such model")
    assert await stream.outcome() is Outcome.FAILED
    assert stream.failure is not None
    assert stream.failure.kind is ErrorKind.NOT_FOUND


async def test_kill_in_mid_stream_ends_it_with_an_error_and_serves_the_next(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "slow_tokens"})
    stream = herd.generate("a", tokens=1000)
    seen = await stream.read(0)
    os.kill(herd.pid("a"), signal.SIGKILL)
    await ended_within(stream, 1.0)
    rest = await read_all(stream, len(seen))
    assert rest.endswith("!worker_died!")
    assert stream.failure is not None
    assert "SIGKILL" in stream.failure.message
    herd.plans.models["a"] = ""
    assert await read_all(herd.generate("a")) == counted(8)


async def test_a_request_that_no_client_has_seen_output_of_is_sent_again(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "slow_tokens"})
    stream = herd.generate("a", tokens=30)
    await eventually_async(lambda: stream.begun, 10, "it runs")
    herd.plans.models["a"] = ""
    os.kill(herd.pid("a"), signal.SIGKILL)
    await ended_within(stream, 15)
    assert await read_all(stream) == counted(30)


async def test_a_crash_before_output_is_invisible(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "crash_mid_stream@1"})
    stream = RequestStream(500, BodyEncoder())
    herd.submit("a", Generate(500, TextPrompt("x"), max_tokens=12), stream)
    assert await read_all(stream) == counted(12)


async def test_a_crash_on_load_is_reported_with_its_last_line(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "crash_on_load", "b": ""})
    stream = herd.generate("a")
    assert await stream.outcome() is Outcome.FAILED
    assert stream.failure is not None
    assert stream.failure.kind is ErrorKind.LOAD_FAILED
    assert "the file is bad" in stream.failure.message
    assert await read_all(herd.generate("b")) == counted(8)


async def test_a_model_that_cannot_be_loaded_says_why(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "load_error"})
    stream = herd.generate("a")
    assert await stream.outcome() is Outcome.FAILED
    assert stream.failure is not None
    assert "not a model" in stream.failure.message


async def test_unload_aborts_a_load(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "slow_load"})
    stream = herd.generate("a")
    await herd.reaches("a", State.LOADING)
    herd.owner.post(UnloadAsked("a"))
    await ended_within(stream, 1.0)
    assert stream.failure is not None
    assert stream.failure.kind is ErrorKind.UNAVAILABLE
    await herd.reaches("a", State.UNLOADED, 3)


async def test_progress_is_shown_while_it_loads(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "slow_load"})
    stream = herd.generate("a")
    assert await stream.outcome(0) is Outcome.SILENT
    text = await read_all(stream)
    assert "#loading" in text
    assert text.endswith(counted(8))


async def test_garbage_from_a_worker_ends_that_worker_only(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "", "b": ""}, fault="garbage_frames@1")
    first = herd.generate("a")
    assert await read_all(first) == counted(8)
    assert await read_all(herd.generate("b")) == counted(8)


async def test_a_flood_of_output_blocks_nobody(make_herd: MakeHerd) -> None:
    herd = await make_herd({"a": "huge_stderr"})
    assert await read_all(herd.generate("a")) == counted(8)
    output = herd.owner.log("a")
    assert output is not None
    assert len(output.lines) <= 400
    assert max(map(len, output.lines)) <= 4096


@pytest.mark.parametrize("over_tcp", [False, True])
async def test_both_transports(make_herd: MakeHerd, over_tcp: bool) -> None:
    herd = await make_herd({"a": ""}, over_tcp=over_tcp)
    assert await read_all(herd.generate("a")) == counted(8)


async def test_a_path_too_long_for_a_socket_is_no_obstacle(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    herd = Herd(deep, FakePlans({"a": ""}))
    await herd.open()
    assert not herd.runtime.fits_socket
    assert await read_all(herd.generate("a")) == counted(8)
    await herd.close()


def _one_place() -> Policy:
    return msgspec.structs.replace(FAST, models_max=1)

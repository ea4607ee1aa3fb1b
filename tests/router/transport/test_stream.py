from __future__ import annotations

import asyncio

import pytest

from protocol.errors import ErrorKind, WireError
from protocol.generate import Completed, Delta, Usage
from router.scheduling.effects import Phase
from router.transport.stream import Outcome, ReaderTooSlow, RequestStream
from router.transport.table import StreamTable
from tests.fakes.encoder import BodyEncoder, TextEncoder

DONE = Completed(1, (), Usage())
DIED = WireError(ErrorKind.WORKER_DIED, "it died")


def text(words: str) -> Delta:
    return Delta(1, words)


async def read_all(stream: RequestStream, offset: int = 0) -> bytes:
    whole = b""
    while data := await stream.read(offset + len(whole)):
        whole += data
    return whole


async def test_readers_get_every_byte() -> None:
    stream = RequestStream(1, TextEncoder())
    early = asyncio.create_task(read_all(stream))
    stream.delta(text("a"))
    assert await stream.outcome() is Outcome.OUTPUT
    stream.delta(text("b"))
    stream.answer(DONE)
    assert await early == b"<ab>"
    assert await read_all(stream) == b"<ab>"
    assert await read_all(stream, 2) == b"b>"
    assert stream.ended


async def test_a_waiting_reader_is_woken_by_each_write() -> None:
    stream = RequestStream(1, TextEncoder())
    for expected in (b"<a", b"b", b"c"):
        reader = asyncio.create_task(stream.read(stream.end))
        await asyncio.wait([reader], timeout=0)
        assert not reader.done()
        stream.delta(text(expected.decode().lstrip("<")))
        assert await reader == expected


async def test_a_body_comes_whole() -> None:
    stream = RequestStream(1, BodyEncoder())
    stream.delta(text("a"))
    stream.delta(text("b"))
    assert await stream.outcome(0) is Outcome.SILENT
    stream.answer(DONE)
    assert await stream.outcome() is Outcome.OUTPUT
    assert await read_all(stream) == b"<ab>"


async def test_a_body_larger_than_the_ring_is_not_cut() -> None:
    stream = RequestStream(1, BodyEncoder(), capacity=10)
    stream.delta(text("x" * 1000))
    stream.answer(DONE)
    assert len(await read_all(stream)) == 1002


async def test_failure_before_output_keeps_its_status() -> None:
    stream = RequestStream(1, TextEncoder())
    waiting = asyncio.create_task(stream.outcome())
    stream.fail(DIED)
    assert await waiting is Outcome.FAILED
    assert stream.failure == DIED


async def test_failure_behind_output_is_an_event_of_the_stream() -> None:
    stream = RequestStream(1, TextEncoder())
    stream.delta(text("a"))
    assert await stream.read(0) == b"<a"
    stream.fail(DIED)
    assert await stream.outcome() is Outcome.OUTPUT
    assert await read_all(stream, 2) == b"!worker_died!"


async def test_failure_of_a_half_collected_body_is_a_failure() -> None:
    stream = RequestStream(1, BodyEncoder())
    stream.delta(text("a"))
    stream.fail(DIED)
    assert await stream.outcome() is Outcome.FAILED


async def test_signs_of_life_begin_with_silence() -> None:
    stream = RequestStream(1, TextEncoder())
    stream.notify(Phase.QUEUED, position=3)
    assert stream.end == 0
    assert await stream.outcome(0) is Outcome.SILENT
    stream.notify(Phase.QUEUED, position=3)
    stream.notify(Phase.LOADING, progress=0.42)
    stream.notify(Phase.RUNNING, progress=0.61)
    stream.delta(text("a"))
    stream.answer(DONE)
    stream.notify(Phase.RUNNING, progress=0.9)
    assert await read_all(stream) == b"#queued 3##loading 42%##prefill 61%#<a>"


async def test_a_failure_after_the_headers_is_in_the_stream() -> None:
    stream = RequestStream(1, TextEncoder())
    assert await stream.outcome(0) is Outcome.SILENT
    stream.fail(DIED)
    assert await read_all(stream) == b"#queued 0#!worker_died!"


async def test_comments_do_not_count_as_an_answer() -> None:
    answered: list[int] = []
    stream = RequestStream(1, TextEncoder(), on_answered=lambda: answered.append(1))
    await stream.outcome(0)
    offset = len(await stream.read(0))
    assert (stream.answered, answered) == (False, [])
    stream.delta(text("a"))
    assert not stream.answered
    await stream.read(offset)
    await stream.read(offset)
    assert (stream.answered, answered) == (True, [1])


async def test_restart_drops_what_nobody_saw() -> None:
    stream = RequestStream(1, TextEncoder())
    await stream.outcome(0)
    seen = await stream.read(0)
    stream.delta(text("lost"))
    stream.restart()
    stream.delta(text("again"))
    stream.answer(DONE)
    assert seen + await read_all(stream, len(seen)) == b"#queued 0#<again>"


async def test_restart_of_a_body_forgets_what_was_collected() -> None:
    stream = RequestStream(1, BodyEncoder())
    stream.delta(text("lost"))
    stream.restart()
    stream.delta(text("again"))
    stream.answer(DONE)
    assert await read_all(stream) == b"<again>"


async def test_restart_is_refused_once_a_client_has_seen_output() -> None:
    stream = RequestStream(1, TextEncoder())
    stream.delta(text("a"))
    await stream.read(0)
    with pytest.raises(ValueError, match="answered"):
        stream.restart()


async def test_a_reader_that_is_overtaken_is_told_so() -> None:
    stream = RequestStream(1, TextEncoder(), capacity=8)
    for _ in range(10):
        stream.delta(text("abcd"))
    with pytest.raises(ReaderTooSlow):
        await stream.read(0)
    assert await stream.read(stream.start) == b"abcdabcd"


async def test_an_offset_that_was_never_written_is_refused() -> None:
    stream = RequestStream(1, TextEncoder())
    with pytest.raises(ValueError, match="behind"):
        await stream.read(1)


async def test_nothing_is_written_behind_the_end() -> None:
    stream = RequestStream(1, TextEncoder())
    stream.answer(DONE)
    stream.delta(text("late"))
    stream.fail(DIED)
    stream.answer(DONE)
    assert await read_all(stream) == b"<>"
    assert stream.failure is None


async def test_an_encoder_that_fails_ends_its_own_request(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(TextEncoder):
        def delta(self, delta: Delta) -> bytes:
            raise KeyError("a fault of ours")

    stream = RequestStream(1, Broken())
    stream.delta(text("a"))
    assert await stream.outcome() is Outcome.FAILED
    assert stream.failure is not None
    assert stream.failure.kind is ErrorKind.INTERNAL
    assert "a fault of ours" in caplog.text


async def test_a_cancelled_reader_leaves_nothing_behind() -> None:
    stream = RequestStream(1, TextEncoder())
    reader = asyncio.create_task(stream.read(0))
    waiter = asyncio.create_task(stream.outcome(60))
    await asyncio.wait([reader, waiter], timeout=0)
    for task in (reader, waiter):
        task.cancel()
    results = await asyncio.gather(reader, waiter, return_exceptions=True)
    assert [type(result) for result in results] == [asyncio.CancelledError] * 2
    stream.delta(text("a"))
    assert await stream.read(0) == b"<a"


def test_the_table_lists_each_request_once() -> None:
    table = StreamTable()
    stream = RequestStream(3, TextEncoder())
    table.add(stream)
    assert table.get(3) is stream
    assert table.get(4) is None
    with pytest.raises(ValueError, match="already"):
        table.add(stream)
    table.remove(3)
    table.remove(3)
    assert list(table) == []

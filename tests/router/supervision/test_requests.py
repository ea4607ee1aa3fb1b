"""What happens to a request's work and output, whatever becomes of its workers and clients."""

from __future__ import annotations

import msgspec

from protocol.chat import TextPrompt
from protocol.errors import ErrorKind, WireError
from protocol.generate import Completed, Delta, Failed, Generate, Parked, ResumePoint, Usage
from protocol.status import SlotStatus
from router.scheduling.effects import Phase
from router.scheduling.events import Child
from router.supervision.requests import RequestBook
from router.transport.stream import Outcome, RequestStream
from tests.fakes.encoder import TextEncoder

WORK = Generate(1, TextPrompt("x"))
OLD, NEW = Child("w1", 1), Child("w1", 2)
DONE = Completed(1, (), Usage())
ERROR = WireError(ErrorKind.DEADLINE, "too late")


def book_and_stream() -> tuple[RequestBook, RequestStream]:
    book, stream = RequestBook(), RequestStream(1, TextEncoder())
    book.add(WORK, stream)
    return book, stream


def delta(text: str) -> tuple[Delta, ...]:
    return (Delta(1, text),)


async def text_of(stream: RequestStream) -> bytes:
    return await stream.read(0)


async def test_the_usual_way() -> None:
    book, stream = book_and_stream()
    assert book.assign(1, OLD) == WORK
    assert book.holder(1) == OLD
    book.deltas(OLD, delta("a"))
    assert book.answer(OLD, DONE)
    assert await text_of(stream) == b"<a>"
    assert len(book) == 0


async def test_a_worker_that_lost_the_request_is_not_heard() -> None:
    book, stream = book_and_stream()
    book.assign(1, OLD)
    book.deltas(OLD, delta("lost"))
    book.lost(OLD)
    assert book.assign(1, NEW) == WORK
    book.deltas(OLD, delta("late"))
    assert not book.answer(OLD, DONE)
    book.deltas(NEW, delta("new"))
    assert book.answer(NEW, DONE)
    assert await text_of(stream) == b"<new>"


async def test_what_a_client_has_seen_is_not_begun_anew() -> None:
    book, stream = book_and_stream()
    book.assign(1, OLD)
    book.deltas(OLD, delta("seen"))
    await text_of(stream)
    book.lost(OLD)
    assert book.assign(1, NEW) is None
    assert stream.failure is not None
    assert stream.failure.kind is ErrorKind.WORKER_DIED
    assert len(book) == 0


async def test_a_parked_request_goes_on_where_it_was() -> None:
    book, stream = book_and_stream()
    book.assign(1, OLD)
    book.deltas(OLD, delta("a"))
    seen = await text_of(stream)
    point = ResumePoint(((7,),))
    assert book.answer(OLD, Parked(1, point))
    assert book.assign(1, NEW) == msgspec.structs.replace(WORK, resume=point)
    book.deltas(NEW, delta("b"))
    book.answer(NEW, DONE)
    assert seen + await stream.read(len(seen)) == b"<ab>"


async def test_a_parked_request_whose_next_worker_dies_begins_anew_if_nobody_saw_it() -> None:
    book, stream = book_and_stream()
    book.assign(1, OLD)
    book.deltas(OLD, delta("a"))
    book.answer(OLD, Parked(1, ResumePoint(((7,),))))
    book.assign(1, NEW)
    book.deltas(NEW, delta("b"))
    book.lost(NEW)
    newest = Child("w1", 3)
    assert book.assign(1, newest) == WORK
    book.deltas(newest, delta("ab"))
    book.answer(newest, DONE)
    assert await text_of(stream) == b"<ab>"


async def test_a_parked_request_whose_next_worker_dies_ends_if_a_client_saw_it() -> None:
    book, stream = book_and_stream()
    book.assign(1, OLD)
    book.deltas(OLD, delta("a"))
    await text_of(stream)
    book.answer(OLD, Parked(1, ResumePoint(((7,),))))
    book.assign(1, NEW)
    book.lost(NEW)
    assert book.assign(1, Child("w1", 3)) is None
    assert stream.failure is not None


async def test_a_parked_request_outlives_the_worker_that_parked_it() -> None:
    book, _ = book_and_stream()
    book.assign(1, OLD)
    point = ResumePoint(((7,),))
    book.answer(OLD, Parked(1, point))
    book.lost(OLD)
    assert book.assign(1, NEW) == msgspec.structs.replace(WORK, resume=point)


async def test_a_failed_answer_fails_the_stream() -> None:
    book, stream = book_and_stream()
    book.assign(1, OLD)
    book.answer(OLD, Failed(1, ERROR))
    assert await stream.outcome() is Outcome.FAILED
    assert stream.failure == ERROR


def test_a_request_that_ended_is_kept_until_its_worker_lets_go() -> None:
    book, stream = book_and_stream()
    book.assign(1, OLD)
    book.end(1, ERROR)
    assert stream.failure == ERROR
    assert len(book) == 1
    assert book.assign(1, NEW) is None
    assert book.answer(OLD, Failed(1, ERROR))
    assert len(book) == 0


def test_a_request_whose_client_left_is_forgotten_with_its_worker() -> None:
    book, _ = book_and_stream()
    book.assign(1, OLD)
    book.left(1)
    assert len(book) == 1
    book.lost(OLD)
    assert len(book) == 0
    assert book.assign(1, NEW) is None


def test_a_request_that_waits_is_forgotten_at_once() -> None:
    book, _ = book_and_stream()
    book.left(1)
    assert len(book) == 0


def test_prefill_is_shown() -> None:
    book, stream = book_and_stream()
    book.assign(1, OLD)
    book.show_prefill((SlotStatus(0, "prefill", 1, 200, 0, 50), SlotStatus(1, "decode", 2), SlotStatus(2, "idle")))
    assert (stream.phase, stream.progress) == (Phase.RUNNING, 0.25)


def test_the_end_of_all() -> None:
    book, stream = book_and_stream()
    book.end_all(ERROR)
    assert stream.failure == ERROR
    assert len(book) == 0

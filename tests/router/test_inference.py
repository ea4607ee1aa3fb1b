"""Requests admitted, answered, given up and cancelled; and several that make one answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from protocol.chat import TextPrompt
from protocol.errors import ErrorKind, WireError
from protocol.generate import Delta, Generate
from protocol.text import Tokenize
from router.http.openai_completions import CompletionBody, CompletionChunks
from router.inference import Inference, Options, Ticket, digest
from router.metrics.trace import TracedStream
from router.scheduling.effects import Phase
from router.scheduling.events import RequestAnswered, RequestLeft
from router.transport.stream import Outcome, RequestStream
from tests.router.http.gateway import SMOL, ScriptedOwner, completed, silence


def generate(text: str = "hi", n: int = 1) -> Generate:
    return Generate(request=0, prompt=TextPrompt(text), n=n)


def quiet() -> tuple[ScriptedOwner, Inference]:
    owner = ScriptedOwner(play=silence)
    return owner, Inference(owner)  # type: ignore[arg-type]


def submit_two(owner: ScriptedOwner, inference: Inference, encoder: Any) -> tuple[Ticket, list[RequestStream]]:
    ticket = inference.submit_all("a", SMOL, [generate("x"), generate("y", n=2)], encoder, Options())
    return ticket, [owner.streams[number] for number in ticket.requests]


def chunks() -> CompletionChunks:
    return CompletionChunks("a", "smol", 1, n=3, include_usage=False)


async def test_request_is_numbered_and_named() -> None:
    owner, inference = quiet()
    first = inference.submit("a", SMOL, generate(), chunks(), Options(priority=3, owner="me", keep_alive=0))
    second = inference.submit("b", SMOL, generate(), chunks(), Options())
    assert [work.request for work in owner.works] == [1, 2]
    assert owner.arrivals[0].priority == 3
    assert owner.arrivals[0].keep_alive == 0
    assert owner.arrivals[0].model == "key-smol"
    assert inference.find("a", "me") is first
    assert inference.find("a", "") is None
    assert inference.running("me") == 1
    assert inference.tickets() == (first, second)


async def test_first_byte_to_a_client_makes_it_answered() -> None:
    owner, inference = quiet()
    ticket = inference.submit("a", SMOL, generate(), chunks(), Options())
    ticket.stream.delta(Delta(1, "x"))
    assert owner.events == []
    await ticket.stream.read(0)
    assert owner.events == [RequestAnswered(1)]


async def test_leaving_ends_a_request_unless_somebody_reads_or_may_come_back() -> None:
    owner, inference = quiet()
    ticket = inference.submit("a", SMOL, generate(), chunks(), Options())
    ticket.stream.attach()
    inference.left(ticket)
    ticket.stream.detach()
    ticket.kept = True
    inference.left(ticket)
    assert owner.left == []
    ticket.kept = False
    inference.left(ticket)
    inference.left(ticket)
    assert owner.left == [1]
    assert not inference.holds(ticket)


async def test_request_that_has_ended_is_only_forgotten() -> None:
    owner, inference = quiet()
    ticket = inference.submit("a", SMOL, generate(), chunks(), Options())
    ticket.stream.answer(completed(generate(), 0))
    inference.left(ticket)
    assert owner.left == []
    assert len(inference) == 0


async def test_cancelled_request_fails_for_its_readers() -> None:
    owner, inference = quiet()
    ticket = inference.submit("a", SMOL, generate(), chunks(), Options())
    inference.cancel(ticket, "stopped")
    assert await ticket.stream.outcome() is Outcome.FAILED
    assert ticket.stream.failure == WireError(ErrorKind.CANCELLED, "stopped")
    assert owner.left == [1]


async def test_work_on_the_vocabulary_needs_no_weights_and_leaves_no_trace() -> None:
    owner, inference = quiet()
    ticket = inference.submit("a", SMOL, Tokenize(request=0, text="x"), chunks(), Options())
    assert owner.arrivals[0].needs_weights is False
    assert not isinstance(ticket.stream, TracedStream)
    inference.forget(ticket)


def test_digest_names_the_content() -> None:
    assert digest(generate("a")) == digest(generate("a"))
    assert digest(generate("a")) != digest(generate("b"))
    assert digest(Tokenize(request=0, text="x")) == ""


async def test_parts_make_one_answer_with_choices_in_order() -> None:
    owner, inference = quiet()
    encoder = CompletionBody("a", "smol", 1, n=3)
    ticket, (first, second) = submit_two(owner, inference, encoder)
    second.delta(Delta(2, "y0", 1, 0))
    second.delta(Delta(2, "y1", 1, 1))
    first.delta(Delta(1, "x"))
    second.answer(completed(generate(n=2), 1))
    assert not ticket.stream.ended
    first.answer(completed(generate(), 1, "limit"))
    body = json.loads(await ticket.stream.read(0))
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [(0, "x"), (1, "y0"), (2, "y1")]
    assert [choice["finish_reason"] for choice in body["choices"]] == ["length", "stop", "stop"]
    assert body["usage"]["prompt_tokens"] == 14
    assert owner.events == [RequestAnswered(1), RequestAnswered(2)]


async def test_part_that_fails_ends_the_answer_and_the_others() -> None:
    owner, inference = quiet()
    ticket, (first, second) = submit_two(owner, inference, chunks())
    first.fail(WireError(ErrorKind.CONTEXT_EXCEEDED, "too long"))
    second.delta(Delta(2, "late"))
    assert ticket.stream.failure == WireError(ErrorKind.CONTEXT_EXCEEDED, "too long")
    assert owner.left == [1, 2]
    inference.left(ticket)
    assert owner.left == [1, 2]


async def test_part_that_begins_anew_cannot_be_mended() -> None:
    owner, inference = quiet()
    ticket, (first, _) = submit_two(owner, inference, chunks())
    first.delta(Delta(1, "x"))
    first.restart()
    first.delta(Delta(1, "x"))
    assert ticket.stream.failure is not None
    assert ticket.stream.failure.kind is ErrorKind.WORKER_DIED


async def test_what_a_part_waits_for_is_told() -> None:
    owner, inference = quiet()
    ticket, (first, _) = submit_two(owner, inference, chunks())
    assert await ticket.stream.outcome(0.0) is Outcome.SILENT
    first.notify(Phase.LOADING, 0, 0.5)
    assert b": loading 50%\n\n" in await ticket.stream.read(0)


async def test_leaving_gives_every_part_up() -> None:
    owner, inference = quiet()
    ticket, _ = submit_two(owner, inference, chunks())
    inference.left(ticket)
    assert owner.events == [RequestLeft(1), RequestLeft(2)]


@pytest.mark.parametrize("count", [1, 2])
async def test_answer_is_the_same_whether_or_not_it_has_parts(count: int) -> None:
    owner, inference = quiet()
    encoder = CompletionBody("a", "smol", 1, n=count)
    ticket = inference.submit_all("a", SMOL, [generate() for _ in range(count)], encoder, Options())
    for number in ticket.requests:
        owner.streams[number].delta(Delta(number, "x"))
        owner.streams[number].answer(completed(generate(), 1))
    body = json.loads(await ticket.stream.read(0))
    assert [choice["text"] for choice in body["choices"]] == ["x"] * count

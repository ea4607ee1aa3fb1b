"""Generation with a real model: the same text however it is batched, cut, shared or streamed."""

from __future__ import annotations

import pytest

from protocol.control import Cancel
from protocol.errors import ErrorKind
from protocol.sampling import SamplingParameters
from tests.model.conftest import chat_request, text_request
from tests.worker.local_wire import LocalWorker

pytestmark = pytest.mark.model

COUNTING = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,"
"""Its continuation is so clear that no difference in the last bits changes it."""
STORY = "Once upon a time there was a little girl who lived in a village near the forest."


def test_the_capital_of_france(worker: LocalWorker) -> None:
    text, completed = worker.generate(text_request(worker, "The capital of France is", max_tokens=8))
    assert text.strip().startswith("Paris")
    assert completed.usage.completion_tokens == completed.choices[0].n_tokens


def test_a_chat_ends_at_its_limit_and_counts(worker: LocalWorker) -> None:
    text, completed = worker.generate(chat_request(worker, "Write a long story about a cat.", max_tokens=12))
    assert text
    assert completed.choices[0].stop == "limit"
    assert completed.usage.completion_tokens == 12
    assert completed.timings.predicted_n == 12
    assert completed.timings.prompt_ms > 0


def test_greedy_output_does_not_depend_on_the_batch(worker: LocalWorker) -> None:
    alone, _ = worker.generate(text_request(worker, COUNTING, max_tokens=24, cache_prompt=False))
    works = [text_request(worker, COUNTING, max_tokens=24, cache_prompt=False) for _ in range(4)]
    for work in works:
        worker.ask(work)
    for work in works:
        worker.completed(work.request)
    assert [worker.text(work.request) for work in works] == [alone] * 4


def test_more_requests_than_slots_are_all_served(worker: LocalWorker) -> None:
    works = [text_request(worker, f"{number} plus one is", max_tokens=4) for number in range(9)]
    for work in works:
        worker.ask(work)
    assert all(worker.completed(work.request).choices[0].n_tokens > 0 for work in works)


def test_a_seed_repeats_a_text(worker: LocalWorker) -> None:
    sampling = SamplingParameters(temperature=1.0, seed=42)
    first, completed = worker.generate(text_request(worker, STORY, sampling=sampling, max_tokens=24))
    second, _ = worker.generate(text_request(worker, STORY, sampling=sampling, max_tokens=24, stream=False))
    other, _ = worker.generate(
        text_request(worker, STORY, sampling=SamplingParameters(temperature=1.0, seed=43), max_tokens=24)
    )
    assert first == second
    assert first != other
    assert completed.seed == 42


def test_stop_strings_cut_the_text_and_are_not_sent(worker: LocalWorker) -> None:
    plain, _ = worker.generate(text_request(worker, STORY, max_tokens=24))
    word = plain.split()[5]
    text, completed = worker.generate(text_request(worker, STORY, max_tokens=24, stop=("never said", word)))
    assert text == plain[: plain.index(word)]
    assert completed.choices[0].stop == "word"
    assert completed.choices[0].word == word


def test_text_is_made_of_whole_characters(worker: LocalWorker) -> None:
    work = text_request(
        worker, "Repeat: 😀😃😄😁 日本語 日本語\nRepeat: 😀😃😄😁 日本語 日本語\nRepeat:", max_tokens=24
    )
    text, _ = worker.generate(work)
    assert "�" not in text
    assert any(ord(character) > 0xFFFF for character in text)


def test_a_shared_prefix_is_computed_once_and_changes_nothing(worker: LocalWorker) -> None:
    system = "You are a patient teacher. " * 12
    questions = [f"{system}What is {number} times two? Answer:" for number in range(4)]
    apart = [
        worker.generate(text_request(worker, question, max_tokens=12, cache_prompt=False))[0] for question in questions
    ]
    works = [text_request(worker, question, max_tokens=12) for question in questions]
    for work in works:
        worker.ask(work)
    cached = [worker.completed(work.request).usage.cached_tokens for work in works]
    assert [worker.text(work.request) for work in works] == apart
    assert all(count > 60 for count in sorted(cached)[1:])


def test_a_conversation_goes_on_from_the_cache(worker: LocalWorker) -> None:
    question = "Tell me three facts about the moon, the sun and the sea, and explain each of them at length."
    answer, first = worker.generate(chat_request(worker, question, max_tokens=16))
    _, second = worker.generate(chat_request(worker, question, answer, "Go on.", max_tokens=4))
    assert second.usage.cached_tokens >= first.usage.prompt_tokens


def test_several_choices_share_the_prompt(worker: LocalWorker) -> None:
    sampling = SamplingParameters(temperature=1.5, seed=7, top_k=0, top_p=1.0)
    work = text_request(worker, STORY, n=3, sampling=sampling, max_tokens=8)
    worker.ask(work)
    completed = worker.completed(work.request)
    assert [end.index for end in completed.choices] == [0, 1, 2]
    assert len({worker.text(work.request, index) for index in range(3)}) == 3
    assert completed.usage.completion_tokens == 24


def test_an_overlong_prompt_is_refused_with_both_numbers(worker: LocalWorker) -> None:
    work = text_request(worker, "word " * 3000)
    worker.ask(work)
    error = worker.failed(work.request)
    assert error.kind is ErrorKind.CONTEXT_EXCEEDED
    assert error.n_ctx == 2048
    assert error.n_prompt_tokens >= 3000


def test_a_request_that_is_cancelled_while_it_decodes_ends_at_once(worker: LocalWorker) -> None:
    work = text_request(worker, STORY, max_tokens=500, sampling=SamplingParameters(temperature=0.0, ignore_eos=True))
    worker.ask(work)
    worker.wait_for_tokens(work.request, 4)
    worker.wire.give(Cancel(work.request))
    assert worker.failed(work.request).kind is ErrorKind.CANCELLED
    assert all(slot.state == "idle" for slot in worker.query().slots)
    assert len(worker.deltas(work.request)) < 100


def test_a_request_that_is_cancelled_while_its_prompt_is_read_ends_at_once(worker: LocalWorker) -> None:
    work = text_request(worker, "a different beginning " * 600, max_tokens=4, cache_prompt=False)
    before = worker.query().counters.prompt_tokens
    worker.ask(work)
    worker.wire.wait_for(
        lambda _sent: any(slot.request == work.request for slot in worker.query().slots) or None, "the prompt to begin"
    )
    worker.wire.give(Cancel(work.request))
    assert worker.failed(work.request).kind is ErrorKind.CANCELLED
    assert worker.query().counters.prompt_tokens - before < 1800
    text, _ = worker.generate(text_request(worker, "The capital of France is", max_tokens=3))
    assert text.strip().startswith("Paris")

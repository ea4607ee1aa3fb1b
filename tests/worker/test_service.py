"""A whole worker with a tiny model: what it does about each message, in each state."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.chat import ChatMessage, ChatPrompt, TextPrompt
from protocol.control import Cancel, Park, SetThreads, Shutdown, Sleep, Wakeup
from protocol.errors import ErrorKind, ExitCode
from protocol.generate import Completed, Generate
from protocol.load import Dying, Load, Loaded, LoadParameters, VocabularyFacts, WorkerSettings
from protocol.sampling import JsonSchema, SamplingParameters
from protocol.status import WorkerState
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
from router.config.facts import read_facts
from tests import factory
from tests.worker import conftest
from tests.worker.local_wire import LocalWorker

pytestmark = pytest.mark.model

GREEDY = SamplingParameters(temperature=0.0)
TEXT = "the cat and the dog went to the house"


@pytest.fixture
def worker(tmp_path: Path, load: conftest.Load) -> LocalWorker:
    return load(factory.language_model(tmp_path / "tiny.gguf"))


def request(worker: LocalWorker, text: str = TEXT, **options: object) -> Generate:
    options.setdefault("sampling", GREEDY)
    options.setdefault("max_tokens", 16)
    return Generate(worker.new_request(), TextPrompt(text), **options)  # type: ignore[arg-type]


def test_a_load_ends_with_the_facts_and_ready(worker: LocalWorker) -> None:
    loaded = next(message for message in worker.wire.sent if isinstance(message, Loaded))
    assert loaded.info.architecture == "llama"
    assert loaded.info.n_ctx == 512
    assert loaded.info.chat_template
    states = [status.state for status in worker.statuses()]
    assert states[0] is WorkerState.EMPTY
    assert WorkerState.LOADING in states
    assert states[-1] is WorkerState.READY
    revisions = [status.revision for status in worker.statuses()]
    assert revisions == sorted(set(revisions))


def test_progress_is_reported_and_memory_is_known(worker: LocalWorker) -> None:
    status = worker.query()
    assert status.memory.resident > status.memory.anonymous > 0
    assert status.memory.devices[0].weights > 0
    assert status.memory.devices[0].context > 0
    assert status.kv_total == 512


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: factory.truncated(path, factory.language_model(path.with_name("whole.gguf"))), "corrupt"),
        (factory.not_a_model, "no GGUF file"),
        (factory.unknown_architecture, "unknown model architecture"),
    ],
)
def test_a_file_that_is_no_model_is_told_from_others(make: Callable[[Path], object], says: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    make(path)
    worker = LocalWorker()
    worker.wire.give(Load("bad", LoadParameters(model_path=str(path))))
    assert worker.join() is ExitCode.LOAD_FAILED
    dying = worker.wire.sent[-1]
    assert isinstance(dying, Dying)
    assert dying.reason.kind is ErrorKind.LOAD_FAILED
    assert says in dying.reason.message
    assert dying.exit_code == ExitCode.LOAD_FAILED


def test_a_missing_file_and_an_unusable_option_end_the_worker(tmp_path: Path) -> None:
    worker = LocalWorker()
    worker.wire.give(Load("none", LoadParameters(model_path=str(tmp_path / "none.gguf"))))
    assert worker.join() is ExitCode.LOAD_FAILED
    worker = LocalWorker()
    path = factory.language_model(tmp_path / "tiny.gguf")
    worker.wire.give(Load("tiny", LoadParameters(model_path=str(path), devices=("no-such-device",))))
    assert worker.join() is ExitCode.USAGE
    assert "no-such-device" in worker.wire.sent[-1].reason.message  # type: ignore[union-attr]


def test_a_shutdown_ends_a_load(tmp_path: Path) -> None:
    worker = LocalWorker()
    worker.wire.give(Load("tiny", LoadParameters(model_path=str(factory.language_model(tmp_path / "tiny.gguf")))))
    worker.wire.give(Shutdown())
    assert worker.join() is ExitCode.OK


def test_a_shutdown_fails_what_runs(worker: LocalWorker) -> None:
    work = request(worker, max_tokens=400)
    worker.ask(work)
    worker.wait_for_tokens(work.request, 2)
    assert worker.stop() is ExitCode.OK
    assert worker.failed(work.request).kind is ErrorKind.CANCELLED


def test_texts_are_answered_awake_and_asleep(worker: LocalWorker) -> None:
    chat = ChatPrompt((ChatMessage("user", "the cat"),))

    def ask_all() -> list[object]:
        works: list[Tokenize | CountTokens | ApplyTemplate] = [
            Tokenize(worker.new_request(), TEXT, with_pieces=True),
            CountTokens(worker.new_request(), TextPrompt(TEXT)),
            ApplyTemplate(worker.new_request(), chat),
        ]
        for work in works:
            worker.ask(work)
        tokenized, counted, applied = (worker.answer(work.request) for work in works)
        assert isinstance(tokenized, Tokenized)
        assert isinstance(counted, TokensCounted)
        assert isinstance(applied, TemplateApplied)
        back = Detokenize(worker.new_request(), tokenized.tokens)
        worker.ask(back)
        detokenized = worker.answer(back.request)
        assert isinstance(detokenized, Detokenized)
        assert detokenized.text.strip() == TEXT
        assert "the cat" in applied.prompt
        return [tokenized.tokens, tokenized.pieces, counted.n_tokens, applied.prompt, detokenized.text]

    awake = ask_all()
    worker.wire.give(Sleep())
    assert worker.wait_for_state(WorkerState.SLEEPING).kv_total == 0
    assert ask_all() == awake
    assert worker.board.state is WorkerState.SLEEPING


def test_it_sleeps_and_wakes_to_the_same_text(worker: LocalWorker) -> None:
    before, _ = worker.generate(request(worker))
    worker.wire.give(Sleep())
    worker.wait_for_state(WorkerState.SLEEPING)
    worker.wire.give(Wakeup())
    worker.wait_for_state(WorkerState.READY)
    states = [status.state for status in worker.statuses()]
    assert states[states.index(WorkerState.SLEEPING) + 1] is WorkerState.WAKING
    assert worker.generate(request(worker))[0] == before


def test_weights_compute_the_same_with_and_without_their_vocabulary(worker: LocalWorker, tmp_path: Path) -> None:
    apart, _ = worker.generate(request(worker))
    whole = LocalWorker()
    parameters = LoadParameters(str(tmp_path / "tiny.gguf"), ctx_size=512)
    whole.wire.give(Load("whole", parameters, WorkerSettings(threads=1)))  # nothing is known of its vocabulary
    whole.wait_for_state(WorkerState.READY)
    together, _ = whole.generate(request(whole))
    assert whole.stop() is ExitCode.OK
    assert together == apart


def test_a_vocabulary_that_cannot_be_read_ends_the_load_with_its_reason(tmp_path: Path) -> None:
    path = factory.language_model(tmp_path / "tiny.gguf")
    facts = read_facts(path)
    worker = LocalWorker()
    parameters = LoadParameters(str(path), override_kv=("tokenizer.ggml.model=str:nonsense",))
    worker.wire.give(Load("tiny", parameters, vocabulary=VocabularyFacts(facts.architecture, facts.n_vocab)))
    assert worker.join() is ExitCode.LOAD_FAILED
    dying = worker.wire.sent[-1]
    assert isinstance(dying, Dying)
    assert "unknown tokenizer: 'nonsense'" in dying.reason.message


def test_work_wakes_a_sleeping_worker(worker: LocalWorker) -> None:
    before, _ = worker.generate(request(worker))
    worker.wire.give(Sleep())
    worker.wait_for_state(WorkerState.SLEEPING)
    assert worker.generate(request(worker))[0] == before


def test_sleep_is_declined_while_work_is_held(worker: LocalWorker) -> None:
    work = request(worker, max_tokens=200)
    worker.ask(work)
    worker.wait_for_tokens(work.request, 2)
    worker.wire.give(Sleep())
    worker.wire.wait_for(
        lambda _sent: worker.statuses()[-1].reason.startswith("declined") or None, "the sleep to be declined"
    )
    assert worker.completed(work.request).choices[0].n_tokens == 200


def test_threads_change_between_steps(worker: LocalWorker) -> None:
    worker.wire.give(SetThreads(2, 2))
    worker.generate(request(worker))
    assert worker.query().threads == 2


def test_a_parked_request_goes_on_elsewhere_with_the_same_text(tmp_path: Path, load: conftest.Load) -> None:
    path = factory.language_model(tmp_path / "tiny.gguf")
    first, second = load(path), load(path)
    sampling = SamplingParameters(temperature=0.0, repeat_penalty=1.1)
    whole, _ = first.generate(request(first, max_tokens=120, sampling=sampling))
    work = request(first, max_tokens=120, sampling=sampling)
    first.ask(work)
    first.wait_for_tokens(work.request, 10)
    first.wire.give(Park(work.request))
    resume = first.parked(work.request).resume
    assert 10 <= len(resume.generated[0]) < 120
    again = Generate(77, TextPrompt(TEXT), sampling, max_tokens=120, resume=resume)
    rest, completed = second.generate(again)
    assert first.text(work.request) + rest == whole
    assert completed.usage.completion_tokens == 120
    assert first.query().counters.parked == 1


def test_whatever_is_known_of_a_request_it_can_be_parked(worker: LocalWorker) -> None:
    works = [request(worker, max_tokens=300) for _ in range(7)]
    for work in works:
        worker.ask(work)
    worker.wait_for_tokens(works[0].request, 1)
    for work in works:
        worker.wire.give(Park(work.request))
    resumes = [worker.parked(work.request).resume for work in works]
    assert resumes[0].generated[0]
    assert worker.query().held == ()
    worker.wire.give(Park(999))
    text, _ = worker.generate(request(worker, resume=resumes[-1]))
    assert text == worker.generate(request(worker))[0]


def test_a_full_cache_parks_and_fails_nobody(tmp_path: Path, load: conftest.Load) -> None:
    worker = load(factory.language_model(tmp_path / "tiny.gguf"), ctx_size=256)
    texts = [f"{TEXT} number {number}" for number in range(4)]
    alone = [worker.generate(request(worker, text, max_tokens=100, cache_prompt=False))[0] for text in texts]
    works = [request(worker, text, max_tokens=100, cache_prompt=False) for text in texts]
    for work in works:
        worker.ask(work)
    for work in works:
        assert worker.completed(work.request).usage.completion_tokens == 100
    assert [worker.text(work.request) for work in works] == alone
    assert worker.query().counters.parked > 0
    assert worker.query().counters.tokens_max <= 256


def test_cancelled_requests_leave_nothing_behind(worker: LocalWorker) -> None:
    works = [request(worker, max_tokens=400) for _ in range(7)]
    for work in works:
        worker.ask(work)
    worker.wait_for_tokens(works[0].request, 1)
    for work in works:
        worker.wire.give(Cancel(work.request))
    assert {worker.failed(work.request).kind for work in works} == {ErrorKind.CANCELLED}
    assert worker.query().held == ()
    assert worker.query().counters.cancelled > 0


def test_a_cancel_for_nobody_is_ignored(worker: LocalWorker) -> None:
    worker.wire.give(Cancel(999))
    assert isinstance(worker.generate(request(worker))[1], Completed)


def test_bad_requests_fail_alone(worker: LocalWorker) -> None:
    good = request(worker, max_tokens=60)
    worker.ask(good)
    bad = [
        request(worker, sampling=SamplingParameters(samplers=("no_such_sampler",))),
        request(worker, sampling=SamplingParameters(logit_bias=((10**9, 1.0),))),
        request(worker, sampling=SamplingParameters(constraint=JsonSchema(b"{"))),
        request(worker, slot=9),
        request(worker, n=5),
        request(worker, n=0),
    ]
    for work in bad:
        worker.ask(work)
    for work in bad:
        assert worker.failed(work.request).kind is ErrorKind.INVALID_REQUEST
    assert worker.completed(good.request).usage.completion_tokens == 60


def test_a_schema_holds(worker: LocalWorker) -> None:
    schema = b'{"type":"object","properties":{"n":{"enum":[1,2]}},"required":["n"],"additionalProperties":false}'
    sampling = SamplingParameters(temperature=1.0, seed=3, constraint=JsonSchema(schema))
    text, completed = worker.generate(request(worker, sampling=sampling, max_tokens=60))
    assert "".join(text.split()) in ('{"n":1}', '{"n":2}')
    assert completed.choices[0].stop == "eos"


def test_zero_tokens_evaluate_the_prompt(worker: LocalWorker) -> None:
    text, completed = worker.generate(request(worker, max_tokens=0))
    assert text == ""
    assert completed.usage.completion_tokens == 0
    assert completed.usage.prompt_tokens > 0


def test_generation_stops_at_the_end_of_the_context(worker: LocalWorker) -> None:
    _, completed = worker.generate(request(worker, max_tokens=-1))
    assert completed.truncated
    assert completed.usage.prompt_tokens + completed.usage.completion_tokens == 512


def test_log_probabilities_and_tokens_come_with_their_text(worker: LocalWorker) -> None:
    sampling = SamplingParameters(temperature=0.0, n_probs=3)
    work = request(worker, sampling=sampling, max_tokens=6, return_tokens=True)
    worker.generate(work)
    extras = [delta.extra for delta in worker.deltas(work.request) if delta.extra]
    logprobs = [logprob for extra in extras for logprob in extra.logprobs]
    assert len(logprobs) == 6
    assert [logprob.token for logprob in logprobs] == [token for extra in extras for token in extra.tokens]
    for logprob in logprobs:
        assert logprob.token == logprob.top[0].token
        assert len(logprob.top) == 3
        assert 0 >= logprob.top[0].logprob >= logprob.top[1].logprob >= logprob.top[2].logprob


def test_kept_settings_are_those_of_the_load(tmp_path: Path, load: conftest.Load) -> None:
    worker = load(
        factory.language_model(tmp_path / "tiny.gguf"), settings=WorkerSettings(threads=1, cache_prompt=False)
    )
    worker.generate(request(worker))
    _, completed = worker.generate(request(worker))
    assert completed.usage.cached_tokens == 0

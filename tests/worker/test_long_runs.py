"""Context shift, speculation, and many requests at random: nothing drifts, nothing leaks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from protocol.chat import TextPrompt
from protocol.control import Cancel
from protocol.errors import ExitCode
from protocol.generate import Completed, Failed, Generate
from protocol.load import DraftSpec, Load, LoadParameters, WorkerSettings
from protocol.sampling import SamplingParameters
from tests import factory
from tests.worker import conftest
from tests.worker.local_wire import LocalWorker

pytestmark = pytest.mark.model

GREEDY = SamplingParameters(temperature=0.0)
TEXT = "the man and the dog went to the house " * 4


def request(worker: LocalWorker, text: str = TEXT, **options: object) -> Generate:
    options.setdefault("sampling", GREEDY)
    return Generate(worker.new_request(), TextPrompt(text), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", [factory.language_model, factory.sliding_window_model, factory.hybrid_model])
def test_a_full_context_is_shifted_when_asked_to(model: object, tmp_path: Path, load: conftest.Load) -> None:
    settings = WorkerSettings(threads=1, context_shift=True)
    worker = load(model(tmp_path / "tiny.gguf"), settings=settings, ctx_size=256)  # type: ignore[operator]
    work = request(worker, max_tokens=600, n_keep=8)
    text, completed = worker.generate(work)
    assert completed.usage.completion_tokens == 600
    assert completed.truncated
    assert len(text.split()) > 300
    assert worker.query().kv_used <= 256
    again, second = worker.generate(request(worker, max_tokens=20))
    assert second.usage.completion_tokens == 20
    assert again == text[: len(again)]


def test_lookup_changes_no_text_and_saves_steps(tmp_path: Path, load: conftest.Load) -> None:
    path = factory.language_model(tmp_path / "tiny.gguf")
    plain = load(path, ctx_size=1024)
    quick = load(path, ctx_size=1024, draft=DraftSpec(kind="lookup", n_max=6))
    expected, _ = plain.generate(request(plain, max_tokens=300))
    text, completed = quick.generate(request(quick, max_tokens=300))
    assert text == expected
    assert completed.usage.completion_tokens == 300
    counters = quick.query().counters
    assert counters.draft_tokens == completed.timings.draft_n > 0
    assert counters.draft_accepted == completed.timings.draft_n_accepted
    assert counters.decode_steps + counters.draft_accepted >= 300
    assert quick.query().kv_used <= completed.usage.prompt_tokens + 300


def test_a_draft_model_changes_no_text_and_saves_steps(tmp_path: Path, load: conftest.Load) -> None:
    """The model drafts for itself, so that nearly every guess is right; whether it guesses at all is a matter of time
    that only the machine knows, and here must happen at least once."""
    path = factory.language_model(tmp_path / "tiny.gguf")
    plain = load(path, ctx_size=1024)
    quick = load(path, ctx_size=1024, draft=DraftSpec(kind="model", model_path=str(path), n_max=4, p_min=0.0))
    expected, _ = plain.generate(request(plain, max_tokens=100))
    drafted = accepted = 0
    for _ in range(10):
        works = [request(quick, max_tokens=100) for _ in range(3)]
        for work in works:
            quick.ask(work)
        for work in works:
            completed = quick.completed(work.request)
            assert quick.text(work.request) == expected
            drafted += completed.timings.draft_n
            accepted += completed.timings.draft_n_accepted
        if drafted:
            break
    assert drafted
    assert accepted > 0.9 * drafted


def test_a_draft_model_must_speak_the_same_vocabulary(tmp_path: Path) -> None:
    path = factory.language_model(tmp_path / "tiny.gguf")
    other = factory.language_model(tmp_path / "other.gguf", vocabulary=factory.byte_pair_vocabulary())
    worker = LocalWorker()
    parameters = LoadParameters(model_path=str(path), draft=DraftSpec(kind="model", model_path=str(other)))
    worker.wire.give(Load("tiny", parameters))
    assert worker.join() is ExitCode.LOAD_FAILED


def test_lookup_keeps_a_seed(tmp_path: Path, load: conftest.Load) -> None:
    path = factory.language_model(tmp_path / "tiny.gguf")
    sampling = SamplingParameters(temperature=0.7, seed=11)
    plain = load(path, ctx_size=1024)
    quick = load(path, ctx_size=1024, draft=DraftSpec(kind="lookup", n_max=4))
    expected, _ = plain.generate(request(plain, sampling=sampling, max_tokens=120))
    assert quick.generate(request(quick, sampling=sampling, max_tokens=120))[0] == expected


@pytest.mark.parametrize("kind", ["off", "lookup"])
def test_five_hundred_requests_at_random_leave_nothing_behind(kind: str, tmp_path: Path, load: conftest.Load) -> None:
    rng = random.Random(2)
    worker = load(
        factory.language_model(tmp_path / "tiny.gguf", end_bias=2.0), ctx_size=512, draft=DraftSpec(kind=kind)
    )
    heads = [" ".join(rng.choices(TEXT.split(), k=40)) for _ in range(3)]
    works = []
    for number in range(500):
        text = f"{rng.choice(heads)} {number} " + "dog " * rng.randint(0, 60)
        work = request(worker, text, max_tokens=rng.randint(0, 40), n=rng.choice((1, 1, 1, 2)))
        works.append(work)
        worker.ask(work)
        if rng.random() < 0.3:
            worker.wire.give(Cancel(rng.choice(works[-8:]).request))
    for work in works:
        assert isinstance(worker.answer(work.request), Completed | Failed)
    status = worker.query()
    assert status.held == ()
    assert all(slot.state == "idle" for slot in status.slots)
    assert status.kv_used <= 512
    assert status.counters.tokens_max <= 512

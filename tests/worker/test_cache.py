"""Prefixes, kept state, slots and adapters, with tiny models of every memory kind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.chat import TextPrompt
from protocol.control import Sleep, Wakeup
from protocol.errors import ErrorKind
from protocol.generate import Completed, Generate, LoraScale
from protocol.load import AdapterSpec, WorkerSettings
from protocol.sampling import SamplingParameters
from protocol.slots import Adapters, ListAdapters, SetAdapters, SlotAction, SlotActionDone
from protocol.status import WorkerState
from tests import factory
from tests.worker import conftest
from tests.worker.local_wire import LocalWorker

pytestmark = pytest.mark.model

GREEDY = SamplingParameters(temperature=0.0)
PREFIX = "the man and the woman went to the house and the dog ran to the cat " * 12
QUESTIONS = ("what is this", "where is the dog", "who is the woman", "when was that")
MEMORY_KINDS = (
    factory.language_model,
    factory.sliding_window_model,
    factory.recurrent_model,
    factory.hybrid_model,
)


def request(worker: LocalWorker, text: str, **options: object) -> Generate:
    options.setdefault("max_tokens", 12)
    return Generate(worker.new_request(), TextPrompt(text), GREEDY, **options)  # type: ignore[arg-type]


def together(worker: LocalWorker, works: list[Generate]) -> list[Completed]:
    for work in works:
        worker.ask(work)
    return [worker.completed(work.request) for work in works]


@pytest.mark.parametrize("model", MEMORY_KINDS)
def test_a_prefix_is_shared_without_changing_the_text(
    model: Callable[[Path], Path], tmp_path: Path, load: conftest.Load
) -> None:
    worker = load(model(tmp_path / "tiny.gguf"), ctx_size=2048)
    texts = [PREFIX + question for question in QUESTIONS]
    apart = [worker.generate(request(worker, text, cache_prompt=False))[0] for text in texts]
    fresh = load(tmp_path / "tiny.gguf", ctx_size=2048)
    works = [request(fresh, text) for text in texts]
    completed = together(fresh, works)
    assert [fresh.text(work.request) for work in works] == apart
    cached = sorted(end.usage.cached_tokens for end in completed)
    assert cached[0] == 0, "the first must compute the prefix"
    assert all(count > 100 for count in cached[1:])


@pytest.mark.parametrize("model", MEMORY_KINDS)
def test_a_conversation_goes_on_from_where_it_was(
    model: Callable[[Path], Path], tmp_path: Path, load: conftest.Load
) -> None:
    worker = load(model(tmp_path / "tiny.gguf"), ctx_size=2048)
    answer, first = worker.generate(request(worker, PREFIX))
    longer = PREFIX + answer + " and the next question is about the dog"
    text, second = worker.generate(request(worker, longer))
    assert second.usage.cached_tokens >= first.usage.prompt_tokens - 1
    assert worker.generate(request(worker, longer, cache_prompt=False))[0] == text


@pytest.mark.parametrize("model", MEMORY_KINDS)
def test_a_repeated_prompt_computes_little(model: Callable[[Path], Path], tmp_path: Path, load: conftest.Load) -> None:
    worker = load(model(tmp_path / "tiny.gguf"), ctx_size=2048)
    first, _ = worker.generate(request(worker, PREFIX))
    second, completed = worker.generate(request(worker, PREFIX))
    assert first == second
    assert completed.timings.prompt_n == 1


@pytest.mark.parametrize("model", MEMORY_KINDS)
def test_kept_state_outlives_the_process(model: Callable[[Path], Path], tmp_path: Path, load: conftest.Load) -> None:
    folder = tmp_path / "kept" / "key"
    settings = WorkerSettings(threads=1, kv_keep_dir=str(folder), kv_keep_bytes=64 << 20, load_key="key")
    worker = load(model(tmp_path / "tiny.gguf"), settings=settings, ctx_size=2048)
    works = [request(worker, PREFIX + question) for question in QUESTIONS]
    together(worker, works)
    answers = [worker.text(work.request) for work in works]
    worker.stop()
    files = list(folder.glob("*.kv"))
    assert files
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)

    later = load(tmp_path / "tiny.gguf", settings=settings, ctx_size=2048)
    for question, answer in zip(QUESTIONS, answers, strict=True):
        text, completed = later.generate(request(later, PREFIX + question + answer + " and then", max_tokens=4))
        assert completed.usage.cached_tokens > 100
        plain, _ = later.generate(
            request(later, PREFIX + question + answer + " and then", max_tokens=4, cache_prompt=False)
        )
        assert text == plain


def test_shared_prefixes_are_kept_once(tmp_path: Path, load: conftest.Load) -> None:
    folder = tmp_path / "kept" / "key"
    settings = WorkerSettings(threads=1, kv_keep_dir=str(folder), kv_keep_bytes=64 << 20, load_key="key")
    worker = load(factory.language_model(tmp_path / "tiny.gguf"), settings=settings, ctx_size=2048)
    together(worker, [request(worker, PREFIX + question, max_tokens=48) for question in QUESTIONS])
    worker.stop()
    sizes = sorted(path.stat().st_size for path in folder.glob("*.kv"))
    assert len(sizes) == 4
    assert sizes[-1] > 4 * sizes[-2]


def test_files_stay_within_the_budget(tmp_path: Path, load: conftest.Load) -> None:
    folder = tmp_path / "kept" / "key"
    budget = 150_000
    settings = WorkerSettings(threads=1, kv_keep_dir=str(folder), kv_keep_bytes=budget, load_key="key")
    worker = load(factory.language_model(tmp_path / "tiny.gguf"), settings=settings, ctx_size=2048)
    for number in range(6):
        worker.generate(request(worker, f"{number} {PREFIX}"))
    worker.stop()
    assert 0 < sum(path.stat().st_size for path in folder.glob("*.kv")) <= budget


@pytest.mark.parametrize("damage", [lambda data: data[:-7], lambda data: data[:-1] + b"\xff", lambda _data: b"nothing"])
def test_a_damaged_file_costs_a_computation_and_no_more(
    damage: Callable[[bytes], bytes], tmp_path: Path, load: conftest.Load
) -> None:
    folder = tmp_path / "kept" / "key"
    settings = WorkerSettings(threads=1, kv_keep_dir=str(folder), kv_keep_bytes=64 << 20, load_key="key")
    worker = load(factory.language_model(tmp_path / "tiny.gguf"), settings=settings, ctx_size=2048)
    before, _ = worker.generate(request(worker, PREFIX))
    worker.stop()
    (path,) = folder.glob("*.kv")
    path.write_bytes(damage(path.read_bytes()))
    later = load(tmp_path / "tiny.gguf", settings=settings, ctx_size=2048)
    text, completed = later.generate(request(later, PREFIX))
    assert text == before
    assert completed.usage.cached_tokens == 0


def test_state_is_kept_through_sleep(tmp_path: Path, load: conftest.Load) -> None:
    settings = WorkerSettings(threads=1, kv_keep_dir=str(tmp_path / "kept" / "key"), kv_keep_bytes=64 << 20)
    worker = load(factory.language_model(tmp_path / "tiny.gguf"), settings=settings, ctx_size=2048)
    before, _ = worker.generate(request(worker, PREFIX))
    worker.wire.give(Sleep())
    worker.wait_for_state(WorkerState.SLEEPING)
    worker.wire.give(Wakeup())
    worker.wait_for_state(WorkerState.READY)
    text, completed = worker.generate(request(worker, PREFIX))
    assert text == before
    assert completed.usage.cached_tokens > 100


def test_idle_sequences_leave_the_cache_and_come_back(tmp_path: Path, load: conftest.Load) -> None:
    worker = load(factory.language_model(tmp_path / "tiny.gguf"), ctx_size=2048)
    prompts = [f"{number} {PREFIX}" for number in range(8)]
    before = [worker.generate(request(worker, prompt))[0] for prompt in prompts]
    assert worker.query().kv_used < 1000
    for prompt, text in zip(prompts, before, strict=True):
        again, completed = worker.generate(request(worker, prompt))
        assert again == text
        assert completed.usage.cached_tokens > 100


def test_a_slot_is_saved_restored_and_erased(tmp_path: Path, load: conftest.Load) -> None:
    settings = WorkerSettings(threads=1, slot_save_path=str(tmp_path / "slots"), load_key="key")
    worker = load(factory.language_model(tmp_path / "tiny.gguf"), settings=settings, ctx_size=2048)

    def act(action: str, slot: int, filename: str = "") -> SlotActionDone:
        number = worker.new_request()
        worker.ask(SlotAction(number, slot, action, filename))
        answer = worker.answer(number)
        assert isinstance(answer, SlotActionDone), answer
        return answer

    text, _ = worker.generate(request(worker, PREFIX, slot=2))
    saved = act("save", 2, "a.bin")
    assert saved.n_tokens > 100
    assert saved.n_bytes == (tmp_path / "slots" / "a.bin").stat().st_size
    assert act("erase", 2).n_tokens == saved.n_tokens
    assert worker.query().kv_used == 0
    assert act("restore", 1, "a.bin").n_tokens == saved.n_tokens
    again, completed = worker.generate(request(worker, PREFIX))
    assert again == text
    assert completed.usage.cached_tokens > 100


def test_when_every_slot_is_erased_nothing_is_left(tmp_path: Path, load: conftest.Load) -> None:
    settings = WorkerSettings(threads=1, load_key="key")
    worker = load(factory.language_model(tmp_path / "tiny.gguf"), settings=settings, ctx_size=2048)
    for number in range(6):
        worker.generate(request(worker, f"{number} {PREFIX}", slot=number % 2))
    assert worker.query().kv_used > 0
    for slot in (0, 1):
        worker.ask(SlotAction(number := worker.new_request(), slot, "erase"))
        assert isinstance(worker.answer(number), SlotActionDone)
    assert worker.query().kv_used == 0
    _, completed = worker.generate(request(worker, f"5 {PREFIX}"))
    assert completed.usage.cached_tokens == 0


@pytest.mark.parametrize(
    ("slot", "action", "filename", "kind"),
    [
        (9, "save", "a.bin", ErrorKind.INVALID_REQUEST),
        (0, "save", "../a.bin", ErrorKind.INVALID_REQUEST),
        (0, "save", "a.bin", ErrorKind.INVALID_REQUEST),
        (0, "restore", "none.bin", ErrorKind.NOT_FOUND),
        (0, "juggle", "", ErrorKind.INVALID_REQUEST),
    ],
)
def test_slot_actions_that_cannot_be_done(
    slot: int, action: str, filename: str, kind: ErrorKind, tmp_path: Path, load: conftest.Load
) -> None:
    settings = WorkerSettings(threads=1, slot_save_path=str(tmp_path))
    worker = load(factory.language_model(tmp_path / "tiny.gguf"), settings=settings)
    worker.ask(SlotAction(1, slot, action, filename))
    assert worker.failed(1).kind is kind


def test_adapters_change_what_is_written_and_share_nothing(tmp_path: Path, load: conftest.Load) -> None:
    model = factory.language_model(tmp_path / "tiny.gguf")
    adapter = factory.lora_adapter(tmp_path / "lora.gguf")
    worker = load(model, ctx_size=2048, adapters=(AdapterSpec(str(adapter), 0.0),))
    plain = request(worker, PREFIX)
    strong = request(worker, PREFIX, adapters=(LoraScale(0, 8.0),))
    completed = together(worker, [plain, strong])
    assert worker.text(plain.request) != worker.text(strong.request)
    assert [end.usage.cached_tokens for end in completed] == [0, 0]
    again, _ = worker.generate(request(worker, PREFIX, adapters=(LoraScale(0, 8.0),)))
    assert again == worker.text(strong.request)

    worker.ask(SetAdapters(90, (LoraScale(0, 8.0),)))
    answer = worker.answer(90)
    assert isinstance(answer, Adapters)
    assert [(info.id, info.scale) for info in answer.adapters] == [(0, 8.0)]
    assert worker.generate(request(worker, PREFIX))[0] == again
    worker.ask(ListAdapters(91))
    assert isinstance(worker.answer(91), Adapters)
    worker.ask(SetAdapters(92, (LoraScale(7, 1.0),)))
    assert worker.failed(92).kind is ErrorKind.INVALID_REQUEST

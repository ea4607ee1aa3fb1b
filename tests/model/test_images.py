"""Images through a projector: encoded once, told apart, a part of the prefix, beside others in the batch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.chat import ChatMessage, ChatPrompt, ContentPart, ImagePart, TextPart, TextPrompt
from protocol.control import Cancel, Park, Sleep
from protocol.errors import ErrorKind
from protocol.generate import Completed, Generate
from protocol.load import Loaded, LoadParameters, WorkerSettings
from protocol.sampling import SamplingParameters
from protocol.status import WorkerState
from protocol.text import CountTokens, TokensCounted
from tests import factory
from tests.factory.media import png, png_of
from tests.factory.projector import IMAGE_TOKENS
from tests.worker.local_wire import LocalWorker
from worker.llama_log import EngineLog
from worker.llama_model import Model
from worker.llama_projector import Projector
from worker.media_error import MediaError

pytestmark = pytest.mark.model

GREEDY = SamplingParameters(temperature=0.0)
ONE, OTHER = png(color=10), png(color=200)
NOISE = 2e-3
"""What logarithms of probabilities may differ by between one batch and another."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("seeing")
    return factory.language_model(folder / "m.gguf"), factory.projector(folder / "mmproj.gguf")


def parameters(files: tuple[Path, Path], **options: object) -> LoadParameters:
    options.setdefault("ctx_size", 512)
    return LoadParameters(str(files[0]), str(files[1]), **options)  # type: ignore[arg-type]


@pytest.fixture
def worker(files: tuple[Path, Path]) -> Iterator[LocalWorker]:
    worker = LocalWorker()
    worker.load(parameters(files), WorkerSettings(threads=1))
    yield worker
    worker.stop()


def turn(*parts: str | bytes, role: str = "user") -> ChatMessage:
    content: list[ContentPart] = [
        TextPart(part) if isinstance(part, str) else ImagePart(part, f"content[{n}]") for n, part in enumerate(parts)
    ]
    return ChatMessage(role, tuple(content))


def chat(worker: LocalWorker, *messages: ChatMessage, **options: object) -> Generate:
    options.setdefault("sampling", GREEDY)
    options.setdefault("max_tokens", 12)
    return Generate(worker.new_request(), ChatPrompt(messages), **options)  # type: ignore[arg-type]


def first_logprobs(worker: LocalWorker, *messages: ChatMessage, **options: object) -> dict[int, float]:
    """The most likely first tokens of an answer and how likely they are: what the model sees shows in them."""
    sampling = SamplingParameters(temperature=0.0, n_probs=20)
    work = chat(worker, *messages, sampling=sampling, max_tokens=1, **options)
    worker.generate(work)
    extra = next(delta.extra for delta in worker.deltas(work.request) if delta.extra and delta.extra.logprobs)
    return {top.token: top.logprob for top in extra.logprobs[0].top}


def distance(left: dict[int, float], right: dict[int, float]) -> float:
    common = left.keys() & right.keys()
    assert len(common) > 5
    return max(abs(left[token] - right[token]) for token in common)


def misses(worker: LocalWorker) -> int:
    engine = worker.worker._engine
    assert engine is not None
    assert engine.media is not None
    return engine.media.cache.misses


def test_a_model_with_a_projector_says_that_it_sees(worker: LocalWorker) -> None:
    loaded = next(message for message in worker.wire.sent if isinstance(message, Loaded))
    assert loaded.info.input_modalities == ("text", "image")


def test_an_image_is_encoded_once_and_computed_once(worker: LocalWorker) -> None:
    question = turn("the dog", ONE, "the cat")
    first, completed = worker.generate(chat(worker, question))
    assert misses(worker) == 1
    assert completed.usage.cached_tokens == 0
    again, completed = worker.generate(chat(worker, question))
    assert misses(worker) == 1, "the second comes from the cache"
    assert again == first
    assert completed.usage.cached_tokens == completed.usage.prompt_tokens - 1
    alone, completed = worker.generate(chat(worker, question, cache_prompt=False))
    assert completed.usage.cached_tokens == 0
    assert alone == first


def test_images_are_told_apart(worker: LocalWorker) -> None:
    one, other = turn("the dog", ONE, "the cat"), turn("the dog", OTHER, "the cat")
    _, completed = worker.generate(chat(worker, one))
    _, following = worker.generate(chat(worker, other))
    text_before = completed.usage.prompt_tokens - IMAGE_TOKENS
    assert 0 < following.usage.cached_tokens < text_before, "only the text before the image is shared"
    seen = first_logprobs(worker, one)
    assert distance(seen, first_logprobs(worker, one, cache_prompt=False)) < NOISE
    assert distance(seen, first_logprobs(worker, other)) > 100 * NOISE
    assert distance(seen, first_logprobs(worker, turn("the dog", "the cat"))) > 100 * NOISE


def test_a_chat_about_images_keeps_its_prefix(worker: LocalWorker) -> None:
    question = turn("the dog", ONE, "the cat", OTHER)
    answer, completed = worker.generate(chat(worker, question))
    work = chat(worker, question, ChatMessage("assistant", answer), turn("and the house"))
    _, following = worker.generate(work)
    assert following.usage.cached_tokens >= completed.usage.prompt_tokens - 1
    assert misses(worker) == 2


def test_images_are_counted(worker: LocalWorker) -> None:
    request = worker.new_request()
    worker.ask(CountTokens(request, ChatPrompt((turn("the dog", ONE, "the cat"),))))
    counted = worker.answer(request)
    assert isinstance(counted, TokensCounted)
    _, completed = worker.generate(chat(worker, turn("the dog", ONE, "the cat")))
    assert counted.n_tokens == completed.usage.prompt_tokens


def test_a_prompt_of_text_and_markers(worker: LocalWorker) -> None:
    prompt = TextPrompt("the dog <__media__> and <__media__>", media=(ImagePart(ONE), ImagePart(OTHER)))
    text, completed = worker.generate(Generate(worker.new_request(), prompt, GREEDY, max_tokens=8))
    assert text
    assert completed.usage.prompt_tokens > 2 * IMAGE_TOKENS
    work = Generate(worker.new_request(), TextPrompt("no place", media=(ImagePart(ONE),)), GREEDY)
    worker.ask(work)
    error = worker.failed(work.request)
    assert error.kind is ErrorKind.INVALID_REQUEST
    assert "0 places" in error.message


def test_streams_run_beside_images(worker: LocalWorker) -> None:
    """Steps of embeddings and of tokens take turns, and neither changes what the other computes."""
    words = TextPrompt("the cat and the dog went to the house")
    alone, _ = worker.generate(Generate(worker.new_request(), words, GREEDY, max_tokens=48))
    seen, _ = worker.generate(chat(worker, turn("the dog", ONE, "the cat"), cache_prompt=False))
    works = [Generate(worker.new_request(), words, GREEDY, max_tokens=48) for _ in range(2)]
    images = [chat(worker, turn("the dog", ONE, "the cat"), cache_prompt=False) for _ in range(4)]
    for work in (*works, *images):
        worker.ask(work)
    during = first_logprobs(worker, turn("the dog", OTHER, "the cat"), cache_prompt=False)
    for work in (*works, *images):
        worker.completed(work.request)
    after = first_logprobs(worker, turn("the dog", OTHER, "the cat"), cache_prompt=False)
    assert distance(during, after) < NOISE
    assert [worker.text(work.request) for work in works] == [alone] * 2
    assert [worker.text(work.request) for work in images] == [seen] * 4


def test_a_parked_chat_about_images_goes_on(worker: LocalWorker) -> None:
    question = turn("the dog", ONE, "the cat")
    whole, _ = worker.generate(chat(worker, question, max_tokens=40))
    work = chat(worker, question, max_tokens=40)
    worker.ask(work)
    worker.wait_for_tokens(work.request, 4)
    worker.wire.give(Park(work.request))
    answer = worker.answer(work.request)
    if isinstance(answer, Completed):
        return  # it was quicker
    parked = worker.parked(work.request)
    begun = worker.text(work.request)
    resumed = chat(worker, question, max_tokens=40, resume=parked.resume)
    rest, _ = worker.generate(resumed)
    assert begun + rest == whole


def test_a_full_cache_parks_and_computes_images_again(files: tuple[Path, Path]) -> None:
    worker = LocalWorker()
    worker.load(parameters(files, ctx_size=256), WorkerSettings(threads=1))
    try:
        works = [chat(worker, turn("the dog", image, "the cat"), max_tokens=90) for image in (ONE, OTHER) * 2]
        for work in works:
            worker.ask(work)
        for work in works:
            worker.completed(work.request)
        texts = [worker.text(work.request) for work in works]
        assert worker.query().counters.parked > 0
        alone = [worker.generate(chat(worker, turn("the dog", i, "the cat"), max_tokens=90))[0] for i in (ONE, OTHER)]
        assert texts == alone * 2
    finally:
        worker.stop()


def test_a_shifted_context_drops_images_whole(files: tuple[Path, Path]) -> None:
    worker = LocalWorker()
    worker.load(parameters(files, ctx_size=256, slots=1), WorkerSettings(threads=1, context_shift=True))
    try:
        text, completed = worker.generate(chat(worker, turn("the dog", ONE, "the cat", OTHER), max_tokens=400))
        assert completed.truncated
        assert completed.usage.completion_tokens == 400
        assert text
    finally:
        worker.stop()


def test_a_sleeping_worker_wakes_for_an_image(worker: LocalWorker) -> None:
    question = turn("the dog", ONE, "the cat")
    before = first_logprobs(worker, question)
    worker.wire.give(Sleep())
    worker.wait_for_state(WorkerState.SLEEPING)
    assert distance(first_logprobs(worker, question, cache_prompt=False), before) < NOISE


def test_kept_state_serves_a_chat_about_images(files: tuple[Path, Path], tmp_path: Path) -> None:
    settings = WorkerSettings(
        threads=1, kv_keep_dir=str(tmp_path / "kv" / "key"), kv_keep_bytes=1 << 26, load_key="key"
    )
    question = turn("the dog " * 20, ONE, "the cat")
    answers = []
    for _ in range(2):
        worker = LocalWorker()
        worker.load(parameters(files), settings)
        _, completed = worker.generate(chat(worker, question))
        answers.append(first_logprobs(worker, question))
        worker.stop()
    assert distance(*answers) < NOISE
    assert completed.usage.cached_tokens > IMAGE_TOKENS + 20


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (png_of(20_000, 20_000, b""), "20000 x 20000"),
        (png_of(40, 30, b"no zlib data"), "damaged"),
        (ONE[:60], "damaged"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "WebP"),
        (b"GIF89a\x10\0\x10\0", "damaged"),
        (b"what is this?", "no image"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "takes no sounds"),
    ],
)
def test_bad_images_are_refused_by_name_and_others_go_on(worker: LocalWorker, data: bytes, says: str) -> None:
    running = Generate(worker.new_request(), TextPrompt("the cat"), GREEDY, max_tokens=60)
    worker.ask(running)
    work = chat(worker, turn("the dog"), turn("the dog", data))
    worker.ask(work)
    error = worker.failed(work.request)
    assert error.kind is ErrorKind.INVALID_REQUEST
    assert error.param == "content[1]"
    assert says in error.message
    assert worker.completed(running.request).usage.completion_tokens == 60


def test_a_file_above_the_limit_is_refused(files: tuple[Path, Path]) -> None:
    worker = LocalWorker()
    worker.load(parameters(files), WorkerSettings(threads=1, media_limit_bytes=50))
    try:
        work = chat(worker, turn("the dog", ONE))
        worker.ask(work)
        assert "at most 50" in worker.failed(work.request).message
    finally:
        worker.stop()


def test_a_model_without_a_projector_names_itself(files: tuple[Path, Path]) -> None:
    worker = LocalWorker()
    worker.load(LoadParameters(str(files[0]), ctx_size=512), WorkerSettings(threads=1))
    try:
        work = chat(worker, turn("the dog", ONE))
        worker.ask(work)
        error = worker.failed(work.request)
        assert error.kind is ErrorKind.INVALID_REQUEST
        assert "'test'" in error.message
        assert error.param == "content[1]"
    finally:
        worker.stop()


def test_too_many_images_exceed_the_context(worker: LocalWorker) -> None:
    work = chat(worker, turn(*[ONE] * 200))
    worker.ask(work)
    assert worker.failed(work.request).kind is ErrorKind.CONTEXT_EXCEEDED


def test_a_request_is_cancelled_while_its_images_wait(worker: LocalWorker) -> None:
    works = [chat(worker, turn("the dog", png(400, 300, color), "the cat")) for color in range(20)]
    for work in works:
        worker.ask(work)
    for work in works[1:]:
        worker.wire.give(Cancel(work.request))
    worker.completed(works[0].request)
    ends = [worker.answer(work.request) for work in works[1:]]
    assert all(isinstance(end, Completed) or end.error.kind is ErrorKind.CANCELLED for end in ends)  # type: ignore[union-attr]
    assert not worker.held


def test_a_projector_of_another_size_is_refused_with_both_numbers(files: tuple[Path, Path], tmp_path: Path) -> None:
    wrong = factory.projector(tmp_path / "mmproj.gguf", n_embd_text=96)
    worker = LocalWorker()
    with pytest.raises(AssertionError, match=r"64.*96"):
        worker.load(LoadParameters(str(files[0]), str(wrong), ctx_size=512), WorkerSettings(threads=1))


def test_an_image_that_many_ask_about_at_once_is_encoded_and_computed_once(worker: LocalWorker) -> None:
    works = [chat(worker, turn("the dog " * 30, ONE, "the cat", f"number {n}")) for n in range(4)]
    for work in works:
        worker.ask(work)
    cached = [worker.completed(work.request).usage.cached_tokens for work in works]
    assert misses(worker) == 1
    assert sum(count > 30 + IMAGE_TOKENS for count in cached) == 3


def test_several_choices_share_an_image(worker: LocalWorker) -> None:
    work = chat(worker, turn("the dog", ONE, "the cat"), n=3)
    _, completed = worker.generate(work)
    assert len(completed.choices) == 3
    assert len({worker.text(work.request, index) for index in range(3)}) == 1


def test_mutated_files_are_read_or_refused(files: tuple[Path, Path]) -> None:
    """The decoders are the engine's: a file must not end the process, whatever is in it."""
    log = EngineLog()
    log.install()
    model = Model(LoadParameters(str(files[0])), log)
    projector = Projector(model, str(files[1]), 1, False, log)
    numbers = random.Random(1)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(400):
        data = bytearray(png(numbers.randint(1, 60), numbers.randint(1, 60)))
        for _ in range(numbers.choice((0, 1, 2, 8))):
            data[numbers.randrange(len(data))] = numbers.choice((0, 1, 127, 255))
        if numbers.random() < 0.2:
            del data[numbers.randrange(len(data)) :]
        try:
            assert projector.encode(bytes(data), lambda: False) is not None
            outcomes["read"] += 1
        except MediaError:
            outcomes["refused"] += 1
    projector.close()
    model.close()
    assert min(outcomes.values()) > 50

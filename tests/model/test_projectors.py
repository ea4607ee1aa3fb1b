"""Each kind of projector gives what the engine's own helper gives, also from the prefix cache and beside others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from protocol.chat import AudioPart, ImagePart, TextPrompt
from protocol.control import Park
from protocol.errors import ErrorKind
from protocol.generate import Completed, Generate, Parked
from protocol.load import Loaded, LoadParameters, WorkerSettings
from protocol.sampling import SamplingParameters
from protocol.slots import SlotAction, SlotActionDone
from tests import factory
from tests.factory import reference
from tests.factory.media import png, wav
from tests.factory.projector import SOUND_TOKENS
from tests.worker.local_wire import LocalWorker

pytestmark = pytest.mark.model

TEXT = "the cat and the dog " * 8 + "<__media__> and the dog went to the house " + "and the cat " * 8
NOISE = 5e-3
"""What the shape of a batch changes."""
KINDS: dict[str, tuple[Callable[[Path], Path], Callable[[Path], Path], ImagePart | AudioPart]] = {
    "llava": (factory.language_model, factory.projector, ImagePart(png())),
    "gemma": (factory.sliding_window_model, factory.gemma_projector, ImagePart(png())),
    "qwen": (factory.grid_model, factory.qwen_projector, ImagePart(png(300, 100))),
    "hearing": (factory.language_model, factory.hearing_projector, AudioPart(wav())),
}


@pytest.fixture(params=KINDS, scope="module")
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def files(kind: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp(kind)
    model, projector, _ = KINDS[kind]
    return model(folder / "m.gguf"), projector(folder / "mmproj.gguf")


@pytest.fixture
def worker(files: tuple[Path, Path]) -> Iterator[LocalWorker]:
    worker = LocalWorker()
    parameters = LoadParameters(str(files[0]), str(files[1]), ctx_size=1024, flash_attn="on")  # as the reference
    worker.load(parameters, WorkerSettings(threads=1))
    yield worker
    worker.stop()


def about(worker: LocalWorker, part: ImagePart | AudioPart, **options: object) -> Generate:
    options.setdefault("sampling", SamplingParameters(temperature=0.0, n_probs=40))
    options.setdefault("max_tokens", 1)
    return Generate(worker.new_request(), TextPrompt(TEXT, media=(part,)), **options)  # type: ignore[arg-type]


def first_token(worker: LocalWorker, work: Generate) -> tuple[dict[int, float], Completed]:
    _, completed = worker.generate(work)
    extra = next(delta.extra for delta in worker.deltas(work.request) if delta.extra and delta.extra.logprobs)
    return {top.token: top.logprob for top in extra.logprobs[0].top}, completed


def test_it_is_what_the_engine_itself_makes(worker: LocalWorker, files: tuple[Path, Path], kind: str) -> None:
    part = KINDS[kind][2]
    expected = reference.logprobs(*files, TEXT, part.data)
    wrong = reference.logprobs(*files, TEXT, wav(hertz=50.0) if kind == "hearing" else png(300, 100, color=90))
    ours, _ = first_token(worker, about(worker, part))
    tokens = list(ours)
    assert np.abs(np.array(list(ours.values())) - expected[tokens]).max() < NOISE
    assert np.abs(wrong - expected)[tokens].max() > 10 * NOISE, "another file gives another answer"
    again, completed = first_token(worker, about(worker, part))
    assert completed.usage.cached_tokens == completed.usage.prompt_tokens - 1
    assert np.abs(np.array(list(again.values())) - expected[list(again)]).max() < NOISE


def test_a_chat_goes_on_behind_its_file(worker: LocalWorker, kind: str) -> None:
    """What follows a file is at the right positions, whether the file came from the cache or not."""
    part = KINDS[kind][2]
    longer = TextPrompt(TEXT + " and " + TEXT, media=(part, part))
    sampling = SamplingParameters(temperature=0.0, n_probs=40)

    def ask(**options: object) -> tuple[dict[int, float], Completed]:
        return first_token(worker, Generate(worker.new_request(), longer, sampling, 1, **options))  # type: ignore[arg-type]

    fresh, _ = ask(cache_prompt=False)
    worker.generate(about(worker, part, max_tokens=20))
    shared, completed = ask()
    assert completed.usage.cached_tokens > 40
    common = fresh.keys() & shared.keys()
    assert len(common) > 30
    assert max(abs(fresh[token] - shared[token]) for token in common) < NOISE


def test_a_parked_answer_goes_on(worker: LocalWorker, kind: str) -> None:
    part = KINDS[kind][2]
    whole, _ = worker.generate(about(worker, part, max_tokens=60))
    work = about(worker, part, max_tokens=60)
    worker.ask(work)
    worker.wait_for_tokens(work.request, 5)
    worker.wire.give(Park(work.request))
    answer = worker.answer(work.request)
    if isinstance(answer, Completed):
        pytest.skip("it was quicker than the message that parks it")
    assert isinstance(answer, Parked)
    begun = worker.text(work.request)
    rest, _ = worker.generate(about(worker, part, max_tokens=60, resume=answer.resume))
    assert begun + rest == whole


def test_a_slot_with_a_file_is_saved_and_restored(files: tuple[Path, Path], kind: str, tmp_path: Path) -> None:
    """In another process as well: tokens and positions are in the state's file, embeddings come with the request."""
    part = KINDS[kind][2]
    parameters = LoadParameters(str(files[0]), str(files[1]), ctx_size=1024, slots=1, flash_attn="on")
    settings = WorkerSettings(threads=1, slot_save_path=str(tmp_path), load_key="key")
    answers = []
    for action in ("save", "restore"):
        worker = LocalWorker()
        worker.load(parameters, settings)
        if action == "save":
            worker.generate(about(worker, part, max_tokens=4))
        request = worker.new_request()
        worker.ask(SlotAction(request, 0, action, "slot"))
        done = worker.answer(request)
        assert isinstance(done, SlotActionDone)
        assert done.n_tokens > 50
        answers.append(first_token(worker, about(worker, part)))
        worker.stop()
    (before, _), (after, completed) = answers
    assert completed.usage.cached_tokens > 50 or kind == "gemma", "its state is that of the whole text, which is longer"
    common = before.keys() & after.keys()
    assert max(abs(before[token] - after[token]) for token in common) < NOISE


def test_modalities_are_known_and_the_other_ones_refused(worker: LocalWorker, kind: str) -> None:
    loaded = next(message for message in worker.wire.sent if isinstance(message, Loaded))
    assert loaded.info.input_modalities == ("text", "audio" if kind == "hearing" else "image")
    other = ImagePart(png()) if kind == "hearing" else AudioPart(wav())
    work = about(worker, other)
    worker.ask(work)
    error = worker.failed(work.request)
    assert error.kind is ErrorKind.INVALID_REQUEST
    assert "takes no " in error.message


def test_an_image_that_must_be_computed_at_once_needs_a_batch_for_it(tmp_path: Path) -> None:
    model = factory.sliding_window_model(tmp_path / "m.gguf")
    projector = factory.gemma_projector(tmp_path / "mmproj.gguf")
    worker = LocalWorker()
    parameters = LoadParameters(str(model), str(projector), ctx_size=512, batch_size=2, ubatch_size=2)
    worker.load(parameters, WorkerSettings(threads=1))
    try:
        work = about(worker, ImagePart(png()))
        worker.ask(work)
        assert "ubatch-size" in worker.failed(work.request).message
    finally:
        worker.stop()


def test_sounds_that_lie_or_are_damaged_are_refused(tmp_path: Path) -> None:
    model = factory.language_model(tmp_path / "m.gguf")
    projector = factory.hearing_projector(tmp_path / "mmproj.gguf")
    worker = LocalWorker()
    worker.load(LoadParameters(str(model), str(projector), ctx_size=512), WorkerSettings(threads=1))
    try:
        for data, says in (
            (wav(claims=1 << 30), "claims 1073741824 bytes"),
            (wav(seconds=0), "without samples"),
            (wav()[:30], "no samples"),
            (b"fLaC\0\0\0\x22" + b"\x10\0\x10\0" + bytes(6) + b"\x0a\xc4\x42\xff" + b"\xff" * 4 + bytes(16), "seconds"),
            (b"\xff\xfb\x90\x00" + b"Xing" + b"\xff" * 200, "damaged"),
        ):
            work = about(worker, AudioPart(data, param="file"))
            worker.ask(work)
            error = worker.failed(work.request)
            assert error.kind is ErrorKind.INVALID_REQUEST
            assert error.param == "file"
            assert says in error.message
        _, completed = first_token(worker, about(worker, AudioPart(wav(claims=0xFFFFFFFF))))
        assert completed.usage.prompt_tokens > SOUND_TOKENS
    finally:
        worker.stop()

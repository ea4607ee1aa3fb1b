"""The media thread with an encoder that does as the test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from protocol import codec
from protocol.chat import TextPrompt
from protocol.errors import ErrorKind
from protocol.generate import Failed, Generate
from protocol.text import CountTokens, TokensCounted
from tests.eventually import eventually
from worker import media_stage
from worker.llama_projector import Encoding
from worker.media_cache import MediaCache
from worker.media_error import MediaError
from worker.media_file import MediaChunk, MediaFile, file_digest
from worker.media_prompt import MediaInput, MediaPrompt
from worker.media_stage import MediaStage
from worker.media_tokens import media_tokens
from worker.prepared import PreparedCount, PreparedGeneration, PreparedPrompt
from worker.stop_strings import StopAutomaton

TIMEOUT = 10.0


class Encoder:
    """Encodes each file to four embeddings; `b"slow"` waits for `go`, others fail as they say."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.began = threading.Event()
        self.encoded: list[bytes] = []
        self.closed = False

    def encode(self, data: bytes, abandoned: Callable[[], bool]) -> MediaFile | None:
        self.began.set()
        if data == b"slow":
            assert self.go.wait(TIMEOUT)
            if abandoned():
                return None
        if data == b"bad":
            raise MediaError("it is bad")
        if data == b"broken":
            raise Encoding("no memory")
        if data == b"fault":
            raise ZeroDivisionError
        self.encoded.append(data)
        row = np.arange(4, dtype=np.int32)[None]
        tokens = media_tokens(file_digest(data), 0, 4, 4)
        return MediaFile(
            (MediaChunk(tokens, np.zeros((4, 2), np.float32), row, np.ones_like(row), whole=data == b"whole"),)
        )

    def close(self) -> None:
        self.closed = True


class Bench:
    def __init__(self) -> None:
        self.encoder = Encoder()
        self.cache = MediaCache(1 << 20)
        self.delivered: list[PreparedGeneration] = []
        self.answers: list[codec.Answer] = []
        self.stage = MediaStage(
            self.encoder,  # type: ignore[arg-type]
            self.cache,
            n_ctx=20,
            n_whole=3,
            deliver=self.delivered.append,
            answer=self.answers.append,
        )

    def ask(self, request: int, *files: bytes) -> None:
        media = MediaPrompt([[1]] * (len(files) + 1), [MediaInput(data, f"f[{n}]") for n, data in enumerate(files)])
        prompt = PreparedPrompt(media.text_tokens, media=media)
        message = Generate(request, TextPrompt(""))
        self.stage.submit(PreparedGeneration(message, prompt, seed=0, stops=StopAutomaton(())))

    def outcome(self) -> PreparedGeneration | codec.Answer:
        eventually(lambda: bool(self.delivered or self.answers), TIMEOUT, "an outcome")
        return (self.delivered or self.answers).pop()  # type: ignore[return-value]


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.encoder.go.set()
    assert bench.stage.close()
    assert bench.encoder.closed


def test_files_are_encoded_once_and_stand_between_the_texts(bench: Bench) -> None:
    bench.ask(1, b"a", b"b")
    ready = bench.outcome()
    assert isinstance(ready, PreparedGeneration)
    assert not ready.prompt.waits_for_media
    assert [token > 0 for token in ready.prompt.tokens] == [True] + [False] * 4 + [True] + [False] * 4 + [True]
    bench.ask(2, b"b", b"a")
    again = bench.outcome()
    assert isinstance(again, PreparedGeneration)
    assert again.prompt.tokens[1:5] == ready.prompt.tokens[6:10]
    assert bench.encoder.encoded == [b"a", b"b"]
    assert not bench.stage.busy


@pytest.mark.parametrize(
    ("data", "kind", "says"),
    [
        (b"bad", ErrorKind.INVALID_REQUEST, "f[1]: it is bad"),
        (b"broken", ErrorKind.INTERNAL, "f[1]: no memory"),
        (b"whole", ErrorKind.INVALID_REQUEST, "a physical batch has 3 (ubatch-size)"),
        (b"fault", ErrorKind.INTERNAL, "the files failed"),
    ],
)
def test_a_file_that_fails_costs_its_request_alone(bench: Bench, data: bytes, kind: ErrorKind, says: str) -> None:
    bench.ask(1, b"a", data)
    failed = bench.outcome()
    assert isinstance(failed, Failed)
    assert failed.error.kind is kind
    assert says in failed.error.message
    bench.ask(2, b"a")
    assert isinstance(bench.outcome(), PreparedGeneration)


def test_a_prompt_that_does_not_fit_is_refused_with_its_size(bench: Bench) -> None:
    bench.ask(1, *[b"a"] * 4)
    failed = bench.outcome()
    assert isinstance(failed, Failed)
    assert failed.error.kind is ErrorKind.CONTEXT_EXCEEDED
    assert "21 tokens" in failed.error.message


def test_tokens_are_counted(bench: Bench) -> None:
    media = MediaPrompt([[1], [2]], [MediaInput(b"a", "f")])
    bench.stage.submit(PreparedCount(CountTokens(7, TextPrompt("")), PreparedPrompt([1, 2], media=media)))
    assert bench.outcome() == TokensCounted(7, 6)


def test_a_request_is_withdrawn_while_it_is_encoded_and_while_it_waits(bench: Bench) -> None:
    bench.ask(1, b"slow")
    bench.ask(2, b"a")
    bench.ask(3, b"b")
    assert bench.encoder.began.wait(TIMEOUT)
    assert bench.stage.busy
    assert bench.stage.withdraw(1)
    assert bench.stage.withdraw(2)
    assert not bench.stage.withdraw(2)
    bench.encoder.go.set()
    ready = bench.outcome()
    assert isinstance(ready, PreparedGeneration)
    assert ready.request == 3
    assert bench.encoder.encoded == [b"b"]
    assert not bench.stage.withdraw(3)


def test_a_pulse_moves_while_a_file_is_encoded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the thread's own time: a machine that is slow is not taken for one that hangs, and one that hangs is."""
    seconds = [0.5]
    monkeypatch.setattr(media_stage.time, "clock_gettime", lambda _: seconds[0])
    at_rest = bench.stage.pulse()
    bench.ask(1, b"slow")
    assert bench.encoder.began.wait(TIMEOUT)
    assert bench.stage.pulse() == at_rest
    seconds[0] = 3.0
    assert bench.stage.pulse() == at_rest + 3
    bench.encoder.go.set()
    bench.outcome()
    assert bench.stage.pulse() == at_rest + 4


def test_a_file_that_takes_too_long_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_stage, "CLOSE_SECONDS", 0.01)
    bench = Bench()
    bench.ask(1, b"slow")
    assert bench.encoder.began.wait(TIMEOUT)
    assert not bench.stage.close()
    assert not bench.encoder.closed, "what is in use is not freed"
    bench.encoder.go.set()
    monkeypatch.setattr(media_stage, "CLOSE_SECONDS", TIMEOUT)
    assert bench.stage.close()

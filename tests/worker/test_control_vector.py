"""Files that hold no control vector for a model end its load with the reason; others change what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.chat import TextPrompt
from protocol.errors import ExitCode
from protocol.generate import Generate
from protocol.load import AdapterSpec, Dying, Load, LoadParameters
from protocol.sampling import SamplingParameters
from tests import factory
from tests.worker import conftest
from tests.worker.local_wire import LocalWorker

pytestmark = pytest.mark.model


def says(worker: LocalWorker) -> str:
    sampling = SamplingParameters(temperature=0.0)
    text, _ = worker.generate(Generate(worker.new_request(), TextPrompt("the house"), max_tokens=16, sampling=sampling))
    return text


def test_a_vector_changes_the_output_by_its_scale_in_its_layers(tmp_path: Path, load: conftest.Load) -> None:
    model = factory.language_model(tmp_path / "tiny.gguf", n_layer=4)
    vector = str(factory.control_vector(tmp_path / "vector.gguf", n_layer=4))
    plain = says(load(model))
    one, half = AdapterSpec(vector, 1.0), AdapterSpec(vector, 0.5)
    assert says(load(model, control_vectors=(AdapterSpec(vector, 0.0),))) == plain
    whole = says(load(model, control_vectors=(one,)))
    assert whole != plain
    assert says(load(model, control_vectors=(half, half))) == whole
    assert says(load(model, control_vectors=(one,), control_vector_layers=(1, 4))) == whole
    assert (
        says(load(model, control_vectors=(one,), control_vector_layers=(4, 4))) == plain
    )  # it has directions for 1 to 3


@pytest.mark.parametrize("kind", ["too wide", "a model", "an adapter", "cut off", "missing"])
def test_what_is_no_vector_of_this_model_is_refused(kind: str, tmp_path: Path) -> None:
    model = factory.language_model(tmp_path / "tiny.gguf")
    path = tmp_path / "vector.gguf"
    if kind == "too wide":
        factory.control_vector(path, n_embd=128)
    elif kind == "a model":
        factory.language_model(path)
    elif kind == "an adapter":
        factory.lora_adapter(path)
    elif kind == "cut off":
        path.write_bytes(factory.control_vector(tmp_path / "whole.gguf").read_bytes()[:-100])
    worker = LocalWorker()
    worker.wire.give(Load("tiny", LoadParameters(str(model), control_vectors=(AdapterSpec(str(path)),))))
    assert worker.join() is ExitCode.LOAD_FAILED
    reason = next(message.reason for message in worker.wire.sent if isinstance(message, Dying))
    assert "vector" in reason.message

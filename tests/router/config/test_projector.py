"""A projector is checked against its model by their headers alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.load import LoadParameters
from router.config.errors import BadValue
from router.config.facts import ModelFacts, read_facts
from router.config.predict import predict
from router.config.projector import check_projector, projector_compute_bytes
from tests import factory


@pytest.fixture(scope="module")
def projector(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    return read_facts(factory.projector(tmp_path_factory.mktemp("p") / "mmproj.gguf", n_embd_text=64))


def test_the_header_says_what_a_projector_makes(projector: ModelFacts) -> None:
    assert projector.kind == "mmproj"
    assert projector.sees
    assert not projector.hears
    assert projector.projector_type == "mlp"
    assert projector.projection == 64
    assert 64 in projector.projection_widths
    assert projector.n_patches == 4
    assert projector.n_embd == 32


def test_a_projector_of_another_size_is_refused_naming_both(projector: ModelFacts) -> None:
    check_projector(ModelFacts("llama", n_embd=64), projector, "m.gguf", "p.gguf")
    with pytest.raises(BadValue, match=r"p\.gguf makes embeddings of 64 values, and the model m\.gguf takes 96"):
        check_projector(ModelFacts("llama", n_embd=96), projector, "m.gguf", "p.gguf")


def test_a_size_that_an_old_file_states_wrongly_is_not_believed() -> None:
    old = ModelFacts("clip", kind="mmproj", projection=768, projection_widths=(1024, 4096))
    check_projector(ModelFacts("llama", n_embd=4096), old, "m.gguf", "p.gguf")
    with pytest.raises(BadValue, match="768"):
        check_projector(ModelFacts("llama", n_embd=2048), old, "m.gguf", "p.gguf")


def test_a_file_that_says_nothing_is_left_to_the_engine() -> None:
    check_projector(ModelFacts("llama", n_embd=64), ModelFacts("clip", kind="mmproj"), "m.gguf", "p.gguf")


def test_a_kind_that_depends_on_the_prompt_is_refused() -> None:
    with pytest.raises(BadValue, match="hunyuanvl"):
        check_projector(ModelFacts("llama"), ModelFacts("clip", projector_type="hunyuanvl"), "m.gguf", "p.gguf")


def test_its_buffers_are_predicted(tmp_path: Path, projector: ModelFacts) -> None:
    model = read_facts(factory.language_model(tmp_path / "m.gguf"))
    parameters = LoadParameters("m.gguf", ctx_size=512)
    (without,) = predict(model, parameters)
    (with_it,) = predict(model, parameters, projector=projector)
    assert projector_compute_bytes(projector) > 0
    assert with_it.compute - without.compute == projector_compute_bytes(projector)
    assert with_it.weights - without.weights == projector.tensor_bytes

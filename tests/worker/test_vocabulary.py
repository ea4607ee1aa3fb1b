"""Vocabularies of real files."""

from __future__ import annotations

from pathlib import Path

import llama_cpp
import pytest

from protocol.load import LoadParameters
from tests import factory
from tests.gateway.process import packaged_model
from worker.llama_log import EngineLog
from worker.llama_model import Contents, Model
from worker.llama_vocabulary import Vocabulary

pytestmark = pytest.mark.model


def asked_one_by_one(vocabulary: Vocabulary) -> set[int]:
    return {token for token in range(vocabulary.n_tokens) if llama_cpp.llama_vocab_is_eog(vocabulary.handle, token)}


def test_the_end_tokens_are_those_that_the_engine_names(tmp_path: Path) -> None:
    tiny = factory.language_model(tmp_path / "tiny.gguf")
    encoder = factory.embedding_model(tmp_path / "encoder.gguf")
    log = EngineLog()
    log.install()
    for path in (tiny, encoder, packaged_model()):
        model = Model(LoadParameters(str(path)), log, contents=Contents.VOCABULARY)
        assert model.vocabulary.end_tokens == asked_one_by_one(model.vocabulary)
        model.close()

"""Vocabularies of real files, and how they are read ahead."""

from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path

import llama_cpp
import pytest

from protocol.control import ForecastFile
from protocol.load import LoadParameters
from tests import factory
from tests.eventually import eventually
from tests.gateway.process import packaged_model
from worker.llama_log import EngineLog
from worker.llama_model import Contents, Model
from worker.llama_vocabulary import Vocabulary
from worker.vocabularies import ComingVocabulary, Vocabularies, _key

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


def expect(vocabularies: Vocabularies, *paths: Path) -> None:
    vocabularies.expect([ForecastFile(str(path)) for path in paths])


def ahead(vocabularies: Vocabularies, path: Path) -> ComingVocabulary:
    """The vocabulary of a file that is read ahead, once it is there."""
    found = next(coming for (file, _), coming in vocabularies._ahead.items() if file.model_path == str(path))
    eventually(lambda: found.there, 30.0, "the vocabulary has been read ahead")
    return found


def test_a_load_takes_what_was_read_ahead_and_drops_the_rest(tmp_path: Path) -> None:
    first = factory.language_model(tmp_path / "first.gguf")
    second = factory.language_model(tmp_path / "second.gguf")
    vocabularies = Vocabularies(EngineLog())
    expect(vocabularies, first, second, tmp_path / "missing.gguf")
    known, other = ahead(vocabularies, first), ahead(vocabularies, second)
    expect(vocabularies, second, first)
    assert ahead(vocabularies, first) is known, "a forecast in another order reads nothing anew"
    taken = vocabularies.take(LoadParameters(str(first)))
    assert taken is known
    assert taken.wait(lambda: True).tokenize("the house", False, False)
    assert not vocabularies._ahead
    assert other._model.result()._handle is None
    taken.close()


def test_a_file_that_was_replaced_or_is_loaded_otherwise_is_read_anew(tmp_path: Path) -> None:
    path = factory.language_model(tmp_path / "tiny.gguf")
    vocabularies = Vocabularies(EngineLog())
    for change in (lambda: os.utime(path, ns=(1, 1)), lambda: None):
        expect(vocabularies, path)
        stale = ahead(vocabularies, path)
        change()
        taken = vocabularies.take(LoadParameters(str(path), override_kv=("tokenizer.ggml.add_bos_token=bool:false",)))
        assert taken is not stale
        assert taken.wait(lambda: True).adds_bos is False
        taken.close()


def test_a_load_does_not_wait_for_what_is_being_read_ahead(tmp_path: Path) -> None:
    path = factory.language_model(tmp_path / "tiny.gguf")
    vocabularies = Vocabularies(EngineLog())
    begun: Future[Model] = Future()
    key = _key(ForecastFile(str(path)))
    assert key is not None
    vocabularies._ahead[key] = ComingVocabulary(str(path), begun)
    begun.set_running_or_notify_cancel()
    taken = vocabularies.take(LoadParameters(str(path)))
    assert taken.wait(lambda: True).n_tokens > 0
    taken.close()
    late = Model(LoadParameters(str(path)), EngineLog(), contents=Contents.VOCABULARY)
    begun.set_result(late)
    assert late._handle is None, "it is freed when it comes"

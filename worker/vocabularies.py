"""Vocabularies, each loaded on a thread of its own beside whatever else goes on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from protocol.load import LoadParameters
from worker.llama_log import EngineLog
from worker.llama_model import Contents, LoadAborted, Model
from worker.llama_vocabulary import Vocabulary

LOOK_INTERVAL = 0.1
"""Seconds between two looks at whether a vocabulary is still wanted."""


class ComingVocabulary:
    """A vocabulary that is being loaded. It may be used while the weights of its file sleep."""

    def __init__(self, parameters: LoadParameters, log: EngineLog) -> None:
        self._path = parameters.model_path
        thread = ThreadPoolExecutor(1, "vocabulary")
        self._model: Future[Model] = thread.submit(_load, parameters, log)
        thread.shutdown(wait=False)

    def wait(self, wanted: Callable[[], bool]) -> Vocabulary:
        """The vocabulary, once it is there. Raises what its load raised, `LoadAborted` if it is not wanted any more."""
        while True:
            try:
                return self._model.result(LOOK_INTERVAL).vocabulary
            except TimeoutError:
                if not wanted():
                    raise LoadAborted(self._path) from None

    def close(self) -> None:
        """Free it, as soon as it is loaded."""
        self._model.add_done_callback(_free)


def _load(parameters: LoadParameters, log: EngineLog) -> Model:
    model = Model(parameters, log, contents=Contents.VOCABULARY)
    _ = model.vocabulary.end_tokens  # the first request shall not wait for it
    return model


def _free(model: Future[Model]) -> None:
    if model.exception() is None:
        model.result().close()

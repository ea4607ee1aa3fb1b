"""Vocabularies, loaded on threads of their own: beside the weights of a model, or ahead of its load."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from protocol.control import ForecastFile
from protocol.load import LoadParameters
from worker.llama_log import EngineLog
from worker.llama_model import Contents, LoadAborted, Model
from worker.llama_vocabulary import Vocabulary

LOOK_INTERVAL = 0.1
"""Seconds between two looks at whether a vocabulary is still wanted."""
AHEAD_NICENESS = 19
"""It begins while nothing computes; a request that comes meanwhile shall hardly notice."""

_Key = tuple[ForecastFile, tuple[int, ...]]
"""A file, and what its contents are told by: device, inode, size, time of change. A file replaced is another one."""


class ComingVocabulary:
    """A vocabulary that is being loaded, or is there. It may be used while the weights of its file sleep."""

    def __init__(self, path: str, model: Future[Model]) -> None:
        self._path = path
        self._model = model

    @property
    def there(self) -> bool:
        return self._model.done() and not self._model.cancelled() and self._model.exception() is None

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
        self._model.cancel()
        self._model.add_done_callback(_free)


class Vocabularies:
    """Those that are read ahead of a load, and the one that a load takes. Used by the decode thread alone."""

    def __init__(self, log: EngineLog) -> None:
        self._log = log
        self._ahead: dict[_Key, ComingVocabulary] = {}
        self._reader: ThreadPoolExecutor | None = None

    def expect(self, files: Sequence[ForecastFile]) -> None:
        """Read these ahead, one after the other, and drop all others."""
        keys = {key: None for file in files if (key := _key(file)) is not None}
        for key in self._ahead.keys() - keys.keys():
            self._ahead.pop(key).close()
        for key in keys:
            if key in self._ahead:
                continue
            if self._reader is None:
                self._reader = ThreadPoolExecutor(1, "vocabularies", _give_way)
            self._ahead[key] = self._start(self._reader, key[0])
        if not keys and self._reader is not None:
            self._reader.shutdown(wait=False)
            self._reader = None

    def take(self, parameters: LoadParameters) -> ComingVocabulary:
        """The vocabulary of a model that is loaded now; the others are dropped.

        One that is not there yet is begun anew: its reader gives way to everybody, and cannot be hurried.
        """
        file = ForecastFile(parameters.model_path, parameters.override_kv)
        key = _key(file)
        found = self._ahead.get(key) if key is not None else None
        if key is not None and found is not None and found.there:
            del self._ahead[key]
        else:
            thread = ThreadPoolExecutor(1, "vocabulary")
            found = self._start(thread, file)
            thread.shutdown(wait=False)
        self.expect(())
        return found

    def _start(self, thread: ThreadPoolExecutor, file: ForecastFile) -> ComingVocabulary:
        return ComingVocabulary(file.model_path, thread.submit(_load, file, self._log))


def _key(file: ForecastFile) -> _Key | None:
    """None for a file that is not there."""
    try:
        status = os.stat(file.model_path)
    except OSError:
        return None
    return file, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _give_way() -> None:
    """For this thread alone: Linux keeps a niceness per thread."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), AHEAD_NICENESS)


def _load(file: ForecastFile, log: EngineLog) -> Model:
    parameters = LoadParameters(file.model_path, override_kv=file.override_kv)
    model = Model(parameters, log, contents=Contents.VOCABULARY)
    _ = model.vocabulary.end_tokens  # the first request shall not wait for it
    return model


def _free(model: Future[Model]) -> None:
    if not model.cancelled() and model.exception() is None:
        model.result().close()

"""One model file in memory: loading, facts, vocabulary."""

from __future__ import annotations

import ctypes
import enum
import os
from collections.abc import Callable
from typing import Any

import llama_cpp

from protocol.errors import ExitCode
from protocol.load import LoadParameters, VocabularyFacts
from worker.llama_log import EngineLog
from worker.llama_parameters import ModelParameters
from worker.llama_vocabulary import Vocabulary

_MAGIC = b"GGUF"
_MEMORY_SIGNS = ("out of memory", "failed to allocate", "unable to allocate", "cannot allocate", "bad_alloc")


class LoadError(Exception):
    """A model that cannot be loaded: why, in words for its user, and with which code the worker ends."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.LOAD_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class LoadAborted(Exception):
    """The progress callback ended a load."""


def engine_failure(what: str, log: EngineLog) -> LoadError:
    """A `LoadError` from what the engine has logged since `log.forget_errors()`."""
    lines = log.errors()
    text = "; ".join(dict.fromkeys(lines)) or "llama.cpp gave no reason"
    short_of_memory = any(sign in text.lower() for sign in _MEMORY_SIGNS)
    return LoadError(f"{what}: {text}", ExitCode.OUT_OF_MEMORY if short_of_memory else ExitCode.LOAD_FAILED)


def check_is_gguf(path: str) -> None:
    """Raise `LoadError` for what can be told without the engine, in clearer words than its own."""
    try:
        with open(path, "rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise LoadError(f"{path}: {error.strerror}") from error
    if head != _MAGIC:
        size = os.stat(path).st_size
        raise LoadError(f"{path}: no GGUF file: it begins with {head!r} and has {size} bytes")


def _read_ahead(path: str) -> None:
    """Ask the system to read the whole file now rather than page by page when it is first used."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(fd)


class Contents(enum.Enum):
    """What of a file is loaded.

    The engine reads a vocabulary on one thread, which takes longer than the weights of a small model. Without it the
    model computes all the same: it only needs to know how many tokens there are.
    """

    ALL = "all"
    VOCABULARY = "vocabulary"
    WEIGHTS = "weights"


class Model:
    """A loaded `llama_model`; `close` frees it. Nothing made from it may be used afterwards.

    `progress(fraction)` is called while the weights are read and ends the load by returning False. `facts` must be
    those of the file where only weights are loaded. Raises `LoadError`, `LoadAborted`, or `UnusableParameter`.
    """

    def __init__(
        self,
        parameters: LoadParameters,
        log: EngineLog,
        progress: Callable[[float], bool] | None = None,
        contents: Contents = Contents.ALL,
        facts: VocabularyFacts | None = None,
    ) -> None:
        path = parameters.model_path
        check_is_gguf(path)
        self._handle: Any = None
        aborted = False

        def watched(fraction: float) -> bool:
            nonlocal aborted
            aborted = progress is not None and not progress(fraction)
            return not aborted

        if parameters.prewarm and contents is not Contents.VOCABULARY:
            _read_ahead(path)
        omitted = facts if contents is Contents.WEIGHTS else None
        structs = ModelParameters(parameters, watched, contents is Contents.VOCABULARY, omitted)
        log.forget_errors()
        self._handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), structs.struct)
        if not self._handle:
            if aborted:
                raise LoadAborted(path)
            raise engine_failure(path, log)
        self.path = path
        vocabulary = llama_cpp.llama_model_get_vocab(self._handle)
        self.n_vocab: int = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._vocabulary = None if contents is Contents.WEIGHTS else Vocabulary(vocabulary)

    @property
    def handle(self) -> Any:
        return self._handle

    @property
    def vocabulary(self) -> Vocabulary:
        assert self._vocabulary is not None, "only the weights of this file were loaded"
        return self._vocabulary

    def close(self) -> None:
        if self._handle:
            llama_cpp.llama_model_free(self._handle)
            self._handle = None

    # Facts

    @property
    def n_ctx_train(self) -> int:
        return int(llama_cpp.llama_model_n_ctx_train(self._handle))

    @property
    def n_embd(self) -> int:
        return int(llama_cpp.llama_model_n_embd(self._handle))

    @property
    def n_embd_out(self) -> int:
        return int(llama_cpp.llama_model_n_embd_out(self._handle))

    @property
    def n_classes(self) -> int:
        return int(llama_cpp.llama_model_n_cls_out(self._handle))

    @property
    def n_params(self) -> int:
        return int(llama_cpp.llama_model_n_params(self._handle))

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return int(llama_cpp.llama_model_size(self._handle))

    @property
    def has_encoder(self) -> bool:
        return bool(llama_cpp.llama_model_has_encoder(self._handle))

    @property
    def has_decoder(self) -> bool:
        return bool(llama_cpp.llama_model_has_decoder(self._handle))

    @property
    def n_swa(self) -> int:
        """Window of sliding-window attention in tokens, 0 without one."""
        return int(llama_cpp.llama_model_n_swa(self._handle))

    @property
    def is_recurrent(self) -> bool:
        return bool(llama_cpp.llama_model_is_recurrent(self._handle) or llama_cpp.llama_model_is_hybrid(self._handle))

    @property
    def description(self) -> str:
        buffer = ctypes.create_string_buffer(256)
        llama_cpp.llama_model_desc(self._handle, buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    @property
    def ftype(self) -> str:
        name = llama_cpp.llama_ftype_name(llama_cpp.llama_model_ftype(self._handle))
        return name.decode("utf-8", "replace") if name else ""

    def metadata(self, key: str) -> str:
        """One metadata value as text, empty if the file has none."""
        room = 1024
        while True:
            buffer = ctypes.create_string_buffer(room)
            length = llama_cpp.llama_model_meta_val_str(self._handle, key.encode(), buffer, room)
            if length < 0:
                return ""
            if length < room:
                return buffer.value.decode("utf-8", "replace")
            room = length + 1

    def metadata_number(self, key: str) -> int:
        """One metadata value of this architecture as a number, 0 if the file has none or a list of them."""
        text = self.metadata(f"{self.metadata('general.architecture')}.{key}")
        return int(text) if text.isdecimal() else 0

    def chat_template(self, name: str = "") -> str:
        """A template of the file by name, or its default one; empty if the file has none."""
        key = name.encode() if name else None
        template = llama_cpp.llama_model_chat_template(self._handle, key)
        return template.decode("utf-8", "replace") if template else ""

"""One `llama_context`: decoding, the KV cache's sequences, the abort switch. Used by the decode thread alone."""

from __future__ import annotations

import ctypes
import enum
from dataclasses import dataclass
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt
from llama_cpp import llama_cpp as bindings

from protocol.load import LoadParameters
from worker.llama_batch import EmbeddingBatch, TokenBatch
from worker.llama_log import EngineLog
from worker.llama_model import Model, engine_failure
from worker.llama_parameters import context_struct
from worker.llama_state import restore_sequence, save_sequence

Floats = npt.NDArray[np.float32]

_libc = ctypes.CDLL(None)


class EngineFailure(Exception):
    """The engine reported an error that no request is to blame for; the worker cannot go on."""


class Outcome(enum.Enum):
    """How a decode step ended."""

    DONE = "done"
    FULL = "full"
    """No room in the KV cache; nothing was decoded."""
    ABORTED = "aborted"
    """The abort switch was thrown; ubatches before the current one have been decoded."""


class AbortSwitch:
    """Ends a running decode step from another thread within milliseconds.

    The engine asks a C function: Python would need the GIL at each node of the graph. `strlen` over two bytes says 0
    while the first is zero, and 1 (true) once it is not.
    """

    def __init__(self) -> None:
        self._flag = ctypes.create_string_buffer(2)
        self.callback = ctypes.cast(_libc.strlen, bindings.ggml_abort_callback)
        self.data = ctypes.cast(self._flag, ctypes.c_void_p)

    def throw(self) -> None:
        self._flag[0] = b"\x01"

    def reset(self) -> None:
        self._flag[0] = b"\x00"


@dataclass(frozen=True, slots=True)
class ContextSizes:
    """`n_ctx` cells in one unified KV cache for `n_seq_max` sequences; steps of `n_batch` tokens, computed `n_ubatch`
    at a time, with up to `n_outputs` rows of logits each."""

    n_ctx: int
    n_batch: int
    n_ubatch: int
    n_seq_max: int
    n_outputs: int
    threads: int
    threads_batch: int


class Context:
    """Raises `LoadError` when the engine cannot make it, `EngineFailure` when it breaks later."""

    def __init__(
        self, model: Model, parameters: LoadParameters, sizes: ContextSizes, log: EngineLog, embeddings: bool = False
    ) -> None:
        struct = context_struct(parameters)
        struct.n_ctx = sizes.n_ctx
        struct.n_batch = sizes.n_batch
        struct.n_ubatch = sizes.n_ubatch
        struct.n_seq_max = sizes.n_seq_max
        struct.n_outputs_max = sizes.n_outputs
        struct.n_threads = sizes.threads
        struct.n_threads_batch = sizes.threads_batch
        struct.embeddings = embeddings
        self.abort = AbortSwitch()
        struct.abort_callback = self.abort.callback
        struct.abort_callback_data = self.abort.data
        log.forget_errors()
        self._log = log
        self._handle: Any = llama_cpp.llama_init_from_model(model.handle, struct)
        if not self._handle:
            raise engine_failure(f"{model.path}: no context of {sizes.n_ctx} tokens", log)
        self._memory = llama_cpp.llama_get_memory(self._handle)
        self._n_vocab = model.n_vocab
        self._n_embd = model.n_embd_out
        self._logits_view: Floats = np.empty((0, self._n_vocab), np.float32)
        self._logits_at = (0, 0)
        self.n_ctx = int(llama_cpp.llama_n_ctx(self._handle))
        self.n_ubatch = int(llama_cpp.llama_n_ubatch(self._handle))
        self.n_seq_max = int(llama_cpp.llama_n_seq_max(self._handle))
        self.pooling = int(llama_cpp.llama_pooling_type(self._handle))
        self.batch = TokenBatch(int(llama_cpp.llama_n_batch(self._handle)))

    @property
    def handle(self) -> Any:
        return self._handle

    @property
    def has_memory(self) -> bool:
        """False for models that only encode: each batch stands for itself."""
        return bool(self._memory)

    @property
    def can_shift(self) -> bool:
        """Whether positions of cached tokens can be moved."""
        return self.has_memory and bool(llama_cpp.llama_memory_can_shift(self._memory))

    def close(self) -> None:
        if self._handle:
            llama_cpp.llama_free(self._handle)
            self._handle = None

    # Computing

    def decode(self) -> Outcome:
        """Compute `self.batch`. Raises `EngineFailure`."""
        return self._outcome(llama_cpp.llama_decode(self._handle, self.batch.seal()))

    def decode_embeddings(self, batch: EmbeddingBatch) -> Outcome:
        """Compute a batch of embeddings in place of `self.batch`. Raises `EngineFailure`."""
        self.batch.clear()
        self.batch.n_outputs = batch.n_outputs
        if not batch.whole:
            return self._outcome(llama_cpp.llama_decode(self._handle, batch.struct))
        llama_cpp.llama_set_causal_attn(self._handle, False)
        try:
            return self._outcome(llama_cpp.llama_decode(self._handle, batch.struct))
        finally:
            llama_cpp.llama_set_causal_attn(self._handle, True)

    def _outcome(self, code: int) -> Outcome:
        if code == 0:
            return Outcome.DONE
        if code == 1:
            return Outcome.FULL
        if code == 2:
            return Outcome.ABORTED
        raise EngineFailure(f"llama_decode returned {code}: {'; '.join(self._log.errors()) or 'no reason given'}")

    def logits(self) -> Floats:
        """The logits of the last step, one row per output; writable, valid until the next step."""
        address, rows = _logits_address(self._handle), self.batch.n_outputs
        if self._logits_at != (address, rows):
            self._logits_view = _floats_at(address, (rows, self._n_vocab))
            self._logits_at = (address, rows)
        return self._logits_view

    def sequence_embedding(self, sequence: int, width: int) -> Floats:
        """A copy of the pooled embedding of one sequence of the last step."""
        return _floats_at(_sequence_embedding_address(self._handle, sequence), (width,)).copy()

    def token_embeddings(self) -> Floats:
        """A copy of the embeddings of every output of the last step."""
        return _floats_at(_embeddings_address(self._handle), (self.batch.n_outputs, self._n_embd)).copy()

    def synchronize(self) -> None:
        llama_cpp.llama_synchronize(self._handle)

    def set_threads(self, threads: int, threads_batch: int) -> None:
        """From the next step on."""
        llama_cpp.llama_set_n_threads(self._handle, threads, threads_batch)

    # Sequences of the KV cache

    def clear(self) -> None:
        if self.has_memory:
            llama_cpp.llama_memory_clear(self._memory, True)

    def share(self, source: int, target: int, length: int) -> None:
        """Let `target` hold the first `length` cells of `source` too."""
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, 0, length)

    def share_all(self, source: int, target: int) -> None:
        """Let `target` hold all that `source` holds: the only form that recurrent state allows."""
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def share_from(self, source: int, target: int, start: int) -> None:
        """Let `target` hold the cells of `source` from position `start` on."""
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, start, -1)

    def truncate(self, sequence: int, length: int) -> bool:
        """Drop everything from position `length` on; False when the state cannot be cut there."""
        return bool(llama_cpp.llama_memory_seq_rm(self._memory, sequence, length, -1))

    def save(self, sequence: int) -> bytes:
        return save_sequence(self._handle, sequence)

    def restore(self, sequence: int, state: bytes) -> bool:
        """False if the state is not of this model or finds no room."""
        return restore_sequence(self._handle, sequence, state)

    def drop(self, sequence: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def shift(self, sequence: int, start: int, stop: int) -> None:
        """Remove positions `start` to `stop` and move what follows down."""
        llama_cpp.llama_memory_seq_rm(self._memory, sequence, start, stop)
        llama_cpp.llama_memory_seq_add(self._memory, sequence, stop, -1, start - stop)

    def length(self, sequence: int) -> int:
        """Tokens that a sequence has in the cache."""
        return int(llama_cpp.llama_memory_seq_pos_max(self._memory, sequence)) + 1


def _prototype(name: str, *arguments: Any) -> Any:
    # The bindings' own functions return typed pointers, which cost far more to take apart than an address.
    function = bindings._lib[name]
    function.restype = ctypes.c_void_p
    function.argtypes = list(arguments)
    return function


_logits_address = _prototype("llama_get_logits", bindings.llama_context_p_ctypes)
_embeddings_address = _prototype("llama_get_embeddings", bindings.llama_context_p_ctypes)
_sequence_embedding_address = _prototype("llama_get_embeddings_seq", bindings.llama_context_p_ctypes, ctypes.c_int32)


def _floats_at(address: int | None, shape: tuple[int, ...]) -> Floats:
    if not address:
        raise EngineFailure("the step has no output")
    array = (ctypes.c_float * int(np.prod(shape))).from_address(address)
    return np.ctypeslib.as_array(array).reshape(shape)

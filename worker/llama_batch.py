"""The arrays of a `llama_batch`, made once and filled anew for each step."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import llama_cpp
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int32]


class TokenBatch:
    """Room for `capacity` tokens, each of one sequence.

    Outputs are numbered in the order in which they are asked for: output k is row k of the step's logits.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.n_tokens = 0
        self.n_outputs = 0
        self._tokens = np.zeros(capacity, np.int32)
        self._positions = np.zeros(capacity, np.int32)
        self._sequences = np.zeros(capacity, np.int32)
        self._outputs = np.zeros(capacity, np.int8)
        self._ones = np.ones(capacity, np.int32)
        # seq_id is an array of pointers, one per token, into the flat array of ids
        base, width = self._sequences.ctypes.data, self._sequences.itemsize
        self._pointers = np.arange(base, base + capacity * width, width, dtype=np.uintp)
        self.struct = llama_cpp.llama_batch(
            n_tokens=0,
            token=_pointer(self._tokens, ctypes.c_int32),
            embd=None,
            pos=_pointer(self._positions, ctypes.c_int32),
            n_seq_id=_pointer(self._ones, ctypes.c_int32),
            seq_id=ctypes.cast(self._pointers.ctypes.data, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
            logits=_pointer(self._outputs, ctypes.c_int8),
        )

    @property
    def room(self) -> int:
        return self.capacity - self.n_tokens

    def clear(self) -> None:
        self.n_tokens = 0
        self.n_outputs = 0

    def add(self, token: int, position: int, sequence: int) -> int:
        """Add one token with an output; the output's number."""
        at = self.n_tokens
        self._tokens[at] = token
        self._positions[at] = position
        self._sequences[at] = sequence
        self._outputs[at] = 1
        self.n_tokens = at + 1
        self.n_outputs += 1
        return self.n_outputs - 1

    def extend(self, tokens: Sequence[int], position: int, sequence: int, outputs: int) -> int:
        """Add a run of tokens whose last `outputs` get an output; the number of the first of these, or -1."""
        start, stop = self.n_tokens, self.n_tokens + len(tokens)
        self._tokens[start:stop] = tokens
        self._positions[start:stop] = np.arange(position, position + len(tokens), dtype=np.int32)
        self._sequences[start:stop] = sequence
        self._outputs[start:stop] = 0
        first = -1
        if outputs:
            self._outputs[stop - outputs : stop] = 1
            first = self.n_outputs
            self.n_outputs += outputs
        self.n_tokens = stop
        return first

    def seal(self) -> llama_cpp.llama_batch:
        """The struct to decode."""
        self.struct.n_tokens = self.n_tokens
        return self.struct


class EmbeddingBatch:
    """Embeddings of one sequence that are computed in one step, with an output at the last one if `output`.

    `positions` has a row per section of a position. `whole` says that the embeddings see one another.
    """

    def __init__(self, embeddings: Floats, positions: Ints, sequence: int, output: bool, whole: bool) -> None:
        self.n_tokens = len(embeddings)
        self.n_outputs = int(output)
        self.whole = whole
        self._embeddings = np.ascontiguousarray(embeddings, np.float32)
        self._positions = np.ascontiguousarray(positions, np.int32)
        self._ones = np.ones(self.n_tokens, np.int32)
        self._sequence = np.array([sequence], np.int32)
        self._pointers = np.full(self.n_tokens, self._sequence.ctypes.data, np.uintp)
        self._outputs = np.zeros(self.n_tokens, np.int8)
        self._outputs[-1] = output
        self.struct = llama_cpp.llama_batch(
            n_tokens=self.n_tokens,
            token=None,
            embd=_pointer(self._embeddings, ctypes.c_float),
            pos=_pointer(self._positions, ctypes.c_int32),
            n_seq_id=_pointer(self._ones, ctypes.c_int32),
            seq_id=ctypes.cast(self._pointers.ctypes.data, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
            logits=_pointer(self._outputs, ctypes.c_int8),
        )


def _pointer(array: np.ndarray, kind: type[ctypes.c_int32] | type[ctypes.c_int8] | type[ctypes.c_float]) -> object:
    return array.ctypes.data_as(ctypes.POINTER(kind))

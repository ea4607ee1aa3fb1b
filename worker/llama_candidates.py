"""Tokens among which samplers choose."""

from __future__ import annotations

import ctypes
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_ROWS = 64
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Candidates:
    """Room for a candidate per token of the vocabulary; one per thread that samples."""

    def __init__(self, n_vocab: int) -> None:
        self._entries = np.zeros(n_vocab, _CANDIDATE)
        self._ids = np.arange(n_vocab, dtype=np.int32)
        self._columns = n_vocab // _ROWS
        self._offsets = np.arange(_ROWS, dtype=np.int32)[:, None] * self._columns
        self._rest = np.arange(_ROWS * self._columns, n_vocab, dtype=np.int32)
        self._start: Any = self._entries.ctypes.data_as(llama_cpp.llama_token_data_p)
        self._address = self._entries.ctypes.data
        self._array = llama_cpp.llama_token_data_array(data=self._start, size=n_vocab, selected=-1, sorted=False)

    def fill(self, logits: Floats, most: int = 0) -> None:
        """Begin anew: with every token, or with some among which are the `most` likely, if that is not 0."""
        ids = self._ids if not 0 < most < self._columns else self._likely(logits, most)
        count = ids.size
        self._entries["id"][:count] = ids
        self._entries["logit"][:count] = logits if count == logits.size else logits[ids]
        self._array.data = self._start  # a sampler drops the first ones by moving this on
        self._array.size = count
        self._array.selected = -1
        self._array.sorted = False

    def _likely(self, logits: Floats, most: int) -> npt.NDArray[np.int32]:
        """The tokens of the `most` columns with the highest maximum: no other can hold one of the `most` likely.

        Columns, for a maximum over rows is computed with vectors; it costs a fifth of writing down every token.
        """
        highest = logits[: _ROWS * self._columns].reshape(_ROWS, self._columns).max(axis=0)
        columns = np.argpartition(highest, self._columns - most)[-most:]
        return np.concatenate(((self._offsets + columns).ravel(), self._rest), dtype=np.int32)

    def apply(self, sampler: Any) -> None:
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(self._array))

    @property
    def selected(self) -> int:
        """The token that the last sampler took."""
        return int(self._array.data[self._array.selected].id)

    def likeliest(self) -> int:
        left = self._left()
        return int(left["id"][left["logit"].argmax()])

    def probabilities(self) -> list[tuple[int, float]]:
        """What is left after a draw, as (token, probability), most likely first; nothing that cannot be drawn."""
        left = self._left()
        left = left[left["p"] > 0]
        order = np.argsort(-left["p"], kind="stable")
        return [(int(left["id"][index]), float(left["p"][index])) for index in order]

    def allowed(self) -> list[int]:
        """The tokens that no sampler has ruled out."""
        left = self._left()
        return [int(token) for token in left["id"][left["logit"] > -np.inf]]

    def _left(self) -> npt.NDArray[np.void]:
        """What the samplers have left of the candidates."""
        address = ctypes.cast(self._array.data, ctypes.c_void_p).value or self._address
        first = (address - self._address) // _CANDIDATE.itemsize
        return self._entries[first : first + self._array.size]

"""Random weights, the same for the same seed, and the file they go into."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from numpy.typing import NDArray

from tests.factory.vocabulary import Vocabulary

Array = NDArray[np.float32]
BIAS_LEVEL = 6.0
"""What dimension 0 of every embedding holds: no layer writes to it, so the output layer can use it as a bias."""


class Weights:
    """Collects a model's tensors. Shapes are given as numpy has them: rows first."""

    def __init__(self, path: Path, architecture: str, seed: int) -> None:
        self.path = path
        self.random = np.random.default_rng(seed)
        self.writer = GGUFWriter(path, architecture)

    def ones(self, name: str, *shape: int) -> None:
        self.put(name, np.ones(shape, np.float32))

    def zeros(self, name: str, *shape: int) -> None:
        self.put(name, np.zeros(shape, np.float32))

    def matrix(self, name: str, rows: int, columns: int, scale: float = 1.0) -> None:
        """A random map from `columns` to `rows` values that keeps their size."""
        self.put(name, self.normal(rows, columns) * (scale / columns**0.5))

    def residual(self, name: str, rows: int, columns: int, scale: float = 1.0) -> None:
        """Like `matrix`, for what is added to the residual stream: it leaves dimension 0 alone."""
        values = self.normal(rows, columns) * (scale / columns**0.5)
        values[0] = 0.0
        self.put(name, values)

    def normal(self, *shape: int) -> Array:
        return self.random.standard_normal(shape, np.float32)

    def put(self, name: str, values: Array) -> None:
        self.writer.add_tensor(name, np.ascontiguousarray(values, np.float32))

    def finish(self) -> Path:
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return self.path

    def embeddings(self, n_vocab: int, n_embd: int) -> None:
        values = self.normal(n_vocab, n_embd)
        values[:, 0] = BIAS_LEVEL
        self.put("token_embd.weight", values)

    def output(self, vocabulary: Vocabulary, n_embd: int, sharpness: float, end_bias: float) -> None:
        """The output layer: plain tokens compete, `end_bias` weighs the end token, all others are out of reach."""
        self.ones("output_norm.weight", n_embd)
        values = self.normal(len(vocabulary), n_embd) * (sharpness / n_embd**0.5)
        bias = np.full(len(vocabulary), -60.0, np.float32)
        bias[vocabulary.text_tokens] = 0.0
        bias[vocabulary.eos] = end_bias
        level = BIAS_LEVEL / ((BIAS_LEVEL**2 + (n_embd - 1) * 2.0) / n_embd) ** 0.5
        values[:, 0] = bias / level
        self.put("output.weight", values)

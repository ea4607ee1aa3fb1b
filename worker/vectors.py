"""Embedding vectors: normalisation, truncation, and their bytes on the wire."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

INT16_RANGE = 32760.0


def normalize(vector: Floats, norm: int) -> Floats:
    """Scale a vector: -1 leaves it, 0 makes its largest absolute value 32760, above 0 its p-norm becomes 1."""
    if norm < 0:
        return vector
    values = vector.astype(np.float64)
    if norm == 0:
        length = float(np.abs(values).max(initial=0.0)) / INT16_RANGE
    else:
        length = float(np.power(np.power(np.abs(values), norm).sum(), 1.0 / norm))
    return np.asarray(values / length if length > 0 else values * 0.0, np.float32)


def pack(vector: Floats, norm: int, dimensions: int) -> bytes:
    """The first `dimensions` values (0 for all), normalised, as little-endian float32."""
    kept = vector[:dimensions] if dimensions else vector
    return normalize(kept, norm).astype("<f4").tobytes()

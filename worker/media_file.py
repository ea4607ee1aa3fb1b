"""A file of a request as the model reads it: text tokens, and chunks of embeddings between them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Embeddings = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class MediaChunk:
    """Embeddings that are computed at consecutive positions.

    `tokens` stand for them in the prompt. `offsets` and `slopes` give, for each of the sections of a position (one, or
    four for M-RoPE) and each embedding, its position: offset + slope * that of the chunk. `whole` says that the
    embeddings see one another, so that all must be in one batch.
    """

    tokens: tuple[int, ...]
    embeddings: Embeddings
    offsets: npt.NDArray[np.int32]
    slopes: npt.NDArray[np.int32]
    whole: bool = False

    @property
    def n_bytes(self) -> int:
        return self.embeddings.nbytes + self.offsets.nbytes + self.slopes.nbytes + 8 * len(self.tokens)

    def positions(self, begin: int, start: int, stop: int) -> npt.NDArray[np.int32]:
        """Positions of the embeddings from `start` to `stop` of a chunk that begins at position `begin`."""
        found: npt.NDArray[np.int32] = self.offsets[:, start:stop] + self.slopes[:, start:stop] * np.int32(begin)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class MediaFile:
    """What one file became."""

    parts: tuple[tuple[int, ...] | MediaChunk, ...]

    @property
    def tokens(self) -> list[int]:
        return [t for part in self.parts for t in (part.tokens if isinstance(part, MediaChunk) else part)]

    @property
    def chunks(self) -> list[MediaChunk]:
        return [part for part in self.parts if isinstance(part, MediaChunk)]

    @property
    def n_bytes(self) -> int:
        return sum(chunk.n_bytes for chunk in self.chunks)


def file_digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()

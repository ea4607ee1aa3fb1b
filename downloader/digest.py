"""The content hash of a file, by which a hub names it: taken while its bytes arrive, so that they are read once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

SHA256_DIGITS = 64
_CHUNK = 1 << 18


class ContentHash:
    """Hashes `size` bytes in the way in which `blob` was made: SHA-256, or git's object id for a short name."""

    def __init__(self, blob: str, size: int) -> None:
        if len(blob) == SHA256_DIGITS:
            self._digest = hashlib.sha256()
        else:
            self._digest = hashlib.sha1(usedforsecurity=False)
            self._digest.update(b"blob %d\x00" % size)
        self.length = 0
        """Bytes taken so far."""

    def update(self, piece: bytes) -> None:
        self._digest.update(piece)
        self.length += len(piece)

    @property
    def name(self) -> str:
        """What the content is called if these were all its bytes."""
        return self._digest.hexdigest()


def pieces(path: Path, end: int) -> Iterator[bytes]:
    """The first `end` bytes of a file, or all of it where it is shorter, in small pieces."""
    with path.open("rb", buffering=0) as file:
        while end > 0 and (piece := file.read(min(_CHUNK, end))):
            end -= len(piece)
            yield piece

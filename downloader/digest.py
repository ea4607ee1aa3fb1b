"""The content hash of a file, by which a hub names it."""

from __future__ import annotations

import hashlib
from pathlib import Path

SHA256_DIGITS = 64
_CHUNK = 1 << 20


def content_hash(path: Path, blob: str) -> str:
    """Hash a file in the way in which `blob` was made: SHA-256, or git's object id for a short name."""
    with path.open("rb", buffering=0) as file:
        if len(blob) == SHA256_DIGITS:
            digest = hashlib.sha256()
        else:
            digest = hashlib.sha1(usedforsecurity=False)
            digest.update(b"blob %d\x00" % path.stat().st_size)
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()

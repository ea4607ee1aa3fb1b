"""Writes GGUF headers byte by byte, sound ones and hostile ones."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY, UINT64 = 4, 5, 6, 7, 8, 9, 10
F32, Q4_0 = 0, 2


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def u32(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<II", UINT32, value)


def f32(key: str, value: float) -> bytes:
    return text(key) + struct.pack("<If", FLOAT32, value)


def flag(key: str, value: bool) -> bytes:
    return text(key) + struct.pack("<I?", BOOL, value)


def string(key: str, value: str) -> bytes:
    return text(key) + struct.pack("<I", STRING) + text(value)


def array(key: str, kind: int, length: int, data: bytes) -> bytes:
    return text(key) + struct.pack("<IIQ", ARRAY, kind, length) + data


def strings(key: str, values: Sequence[str]) -> bytes:
    return array(key, STRING, len(values), b"".join(map(text, values)))


def tensor(name: str, dimensions: Sequence[int], kind: int = F32) -> bytes:
    sizes = b"".join(struct.pack("<Q", size) for size in dimensions)
    return text(name) + struct.pack("<I", len(dimensions)) + sizes + struct.pack("<IQ", kind, 0)


def header(
    entries: Sequence[bytes],
    tensors: Sequence[bytes] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_entries: int | None = None,
    n_tensors: int | None = None,
) -> bytes:
    counts = struct.pack(
        "<IQQ",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(entries) if n_entries is None else n_entries,
    )
    return magic + counts + b"".join(entries) + b"".join(tensors)


def write(path: Path, data: bytes, tensor_bytes: int = 0) -> Path:
    """A file with room for its tensors behind the header, aligned as the format wants it."""
    padding = -len(data) % 32
    path.write_bytes(data + bytes(padding + tensor_bytes))
    return path

"""Small images and sounds, and such that lie about themselves."""

from __future__ import annotations

import struct
import zlib

import numpy as np


def png(width: int = 40, height: int = 30, color: int = 10) -> bytes:
    """An image whose upper half has one color and whose lower half another."""
    pixels = np.full((height, width, 3), color, np.uint8)
    pixels[: height // 2] = 255 - color
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    return png_of(width, height, zlib.compress(rows))


def png_of(width: int, height: int, packed: bytes) -> bytes:
    """A PNG file of 8-bit colors with any data behind its header."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", packed) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def wav(seconds: float = 0.5, hertz: float = 440.0, *, rate: int = 16_000, claims: int | None = None) -> bytes:
    """A tone of 16-bit samples; `claims` is the number of bytes that the header states in place of the true one."""
    times = np.arange(int(seconds * rate)) / rate
    samples = (8_000 * np.sin(2 * np.pi * hertz * times)).astype("<i2").tobytes()
    size = len(samples) if claims is None else claims
    head = struct.pack("<HHIIHH", 1, 1, rate, 2 * rate, 2, 16)
    return (
        b"RIFF" + struct.pack("<I", 36 + len(samples)) + b"WAVEfmt " + struct.pack("<I", 16) + head
        + b"data" + struct.pack("<I", size) + samples
    )  # fmt: skip

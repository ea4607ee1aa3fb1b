"""Sound files made safe to decode: the decoder believes what a file says of its length, so that it must not lie."""

from __future__ import annotations

import re
import struct

from worker.media_error import MediaError

SECONDS_MOST = 3600
MP3_BYTES_MOST = 16 << 20
"""At its lowest rate that is four hours and a half: an MP3 file says its length nowhere that could be believed."""

_RATES = range(1_000, 768_001)
_CHANNELS = range(1, 33)
_WIDTHS = {1: (8, 16, 24, 32), 3: (32, 64), 6: (8,), 7: (8,)}
"""Bits of a sample for each format: PCM, floating point, A-law, µ-law."""
_EXTENSIBLE = 0xFFFE
_UNKNOWN_SIZE = 0x7FFFF000
"""A data chunk of this size or more is one whose length was not known when it was written."""
_MP3_TAGS = re.compile(rb"Xing|Info|VBRI")


def is_sound(data: bytes) -> bool:
    """Whether a file begins as a sound does."""
    wave = data[:4] == b"RIFF" and data[8:12] == b"WAVE"
    return wave or data[:4] == b"fLaC" or data[:3] == b"ID3" or _begins_mp3(data)


def checked_sound(data: bytes) -> bytes:
    """The same sound in a form that states its true length. Raises `MediaError` for what cannot be decoded."""
    if data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        return _wave(data)
    if data[:4] == b"fLaC":
        return _flac(data)
    return _mp3(data)


def _wave(data: bytes) -> bytes:
    """A new header before the samples that are really there."""
    format_chunk = b""
    at = 12
    while at + 8 <= len(data):
        kind, size = data[at : at + 4], int.from_bytes(data[at + 4 : at + 8], "little")
        body, left = at + 8, len(data) - at - 8
        if kind == b"fmt ":
            format_chunk = data[body : body + size]
        elif kind == b"data":
            if left < size < _UNKNOWN_SIZE:
                raise MediaError(f"a WAV file that claims {size} bytes of samples and has {left}")
            return _canonical_wave(format_chunk, data[body : body + min(size, left)])
        at = body + size + size % 2
    raise MediaError("a damaged WAV file: it has no samples")


def _canonical_wave(format_chunk: bytes, samples: bytes) -> bytes:
    if len(format_chunk) < 16:
        raise MediaError("a damaged WAV file: its samples have no format")
    kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", format_chunk[:16])
    if kind == _EXTENSIBLE and len(format_chunk) >= 26:
        kind = int.from_bytes(format_chunk[24:26], "little")
    if bits not in _WIDTHS.get(kind, ()) or channels not in _CHANNELS or rate not in _RATES:
        raise MediaError(f"a WAV file of format {kind}, {channels} channels, {bits} bits and {rate} Hz")
    frame = channels * bits // 8
    samples = samples[: len(samples) // frame * frame]
    _check_duration(len(samples) // frame, rate, "WAV")
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16, kind, channels, rate,
                       rate * frame, frame, bits, b"data", len(samples))  # fmt: skip
    return head + samples


def _flac(data: bytes) -> bytes:
    if len(data) < 42 or data[4] & 0x7F or int.from_bytes(data[5:8], "big") != 34:
        raise MediaError("a damaged FLAC file: it does not begin with its facts")
    facts = int.from_bytes(data[18:26], "big")
    rate, frames = facts >> 44, facts & ((1 << 36) - 1)
    if rate not in _RATES:
        raise MediaError(f"a FLAC file of {rate} Hz")
    _check_duration(frames, rate, "FLAC")
    return data


def _mp3(data: bytes) -> bytes:
    """Without what other decoders would look for in front, and without the tags that state a length."""
    while data[:3] == b"ID3" and len(data) >= 10:
        size = 0
        for byte in data[6:10]:
            size = size << 7 | byte & 0x7F
        data = data[10 + size :]
    if not _begins_mp3(data):
        raise MediaError("no sound that can be decoded here: WAV, MP3 and FLAC can")
    if len(data) > MP3_BYTES_MOST:
        raise MediaError(f"an MP3 file of {len(data)} bytes: at most {MP3_BYTES_MOST} are read")
    return _MP3_TAGS.sub(b"\0\0\0\0", data)


def _begins_mp3(data: bytes) -> bool:
    return len(data) > 2 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0


def _check_duration(frames: int, rate: int, name: str) -> None:
    if not frames:
        raise MediaError(f"a {name} file without samples")
    if frames > SECONDS_MOST * rate:
        raise MediaError(f"a {name} file of {frames // rate} seconds: at most {SECONDS_MOST} are read")

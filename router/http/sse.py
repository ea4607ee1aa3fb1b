"""Server-sent events and JSON fragments as bytes."""

from __future__ import annotations

import os

import msgspec

_encoder = msgspec.json.Encoder()

DONE = b"data: [DONE]\n\n"

to_json = _encoder.encode
"""JSON of a value, without spaces."""


def event(data: bytes) -> bytes:
    """One unnamed event; `data` holds no line break, as JSON text never does."""
    return b"data: " + data + b"\n\n"


def named_event(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


def comment(text: str) -> bytes:
    """A line that clients skip; it keeps proxies and readers from giving up."""
    return b": " + text.encode() + b"\n\n"


def random_id(prefix: str) -> str:
    """An id such as `chatcmpl-` and 32 hexadecimal digits."""
    return prefix + os.urandom(16).hex()

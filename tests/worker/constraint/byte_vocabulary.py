"""A vocabulary of the 256 bytes and an end token, and texts drawn from what a mask allows."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from worker.constraint import ConstraintCompiler, Matcher, ReasoningGate, TokenTable

END = 256
PLAIN = frozenset(b'abcdefghijklmnopqrstuvwxyz ABCDEF0123456789"<]}\n')


def byte_compiler() -> ConstraintCompiler:
    pieces = [bytes([byte]) for byte in range(256)] + [b"<end>"]
    return ConstraintCompiler(
        TokenTable(pieces, control=[END], end_tokens=[END], tokenize=lambda text: list(text.encode()))
    )


def allowed(matcher: Matcher | ReasoningGate) -> list[int]:
    mask = matcher.mask()
    if mask is None:
        return list(range(END))
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")[: END + 1]
    return [int(token) for token in bits.nonzero()[0]]


def accepts(matcher: Matcher | ReasoningGate, text: str) -> bool:
    """Whether a mask allows each byte of a text, and the end behind it."""
    for byte in text.encode():
        if byte not in allowed(matcher):
            return False
        matcher.accept(byte)
    return END in allowed(matcher)


def draw(
    matcher: Matcher | ReasoningGate,
    seed: int,
    endings: Sequence[bytes] = (b'"', b"]", b"}"),
    limit: int = 4000,
) -> str | None:
    """A random text from what the masks allow; None if it does not end. `endings` get free text to its end."""
    choose = random.Random(seed)
    text = bytearray()
    queue = b""
    while len(text) < limit:
        tokens = allowed(matcher)
        assert tokens, f"nothing may follow {bytes(text)!r}"
        if END in tokens and (len(tokens) == 1 or choose.random() < 0.3):
            return text.decode()
        tokens = [token for token in tokens if token != END]
        if not queue and len(tokens) > 60 and choose.random() < 0.2:
            queue = choose.choice(list(endings))
        if queue and queue[0] in tokens:
            token, queue = queue[0], queue[1:]
        else:
            queue = b""
            token = choose.choice([token for token in tokens if token in PLAIN] or tokens)
        matcher.accept(token)
        text.append(token)
    return None

from __future__ import annotations

import random

import pytest

from router.transport.ring import ByteRing


def test_keeps_the_last_bytes_under_their_offsets() -> None:
    ring = ByteRing(4)
    ring.append(b"abc")
    ring.append(b"def")
    assert (ring.start, ring.end) == (2, 6)
    assert ring.read(2) == b"cdef"
    assert ring.read(5) == b"f"
    assert ring.read(6) == b""


@pytest.mark.parametrize("offset", [-1, 1, 7])
def test_refuses_offsets_that_are_not_held(offset: int) -> None:
    ring = ByteRing(4)
    ring.append(b"abcdef"[:3])
    ring.append(b"def")
    with pytest.raises(ValueError, match="outside"):
        ring.read(offset)


def test_one_append_is_kept_whole() -> None:
    ring = ByteRing(4)
    ring.append(b"ab")
    ring.append(b"0123456789")
    assert (ring.start, ring.read(2)) == (2, b"0123456789")


def test_without_a_capacity_nothing_is_lost() -> None:
    ring = ByteRing(None)
    for _ in range(100):
        ring.append(b"x" * 1000)
    assert (ring.start, ring.end) == (0, 100_000)


def test_truncate_forgets_what_came_behind() -> None:
    ring = ByteRing(100)
    ring.append(b"comment")
    ring.append(b"answer")
    ring.truncate(7)
    assert ring.read(0) == b"comment"
    small = ByteRing(4)
    small.append(b"abc")
    small.append(b"def")
    with pytest.raises(ValueError, match="before"):
        small.truncate(1)


def test_agrees_with_a_plain_log() -> None:
    chance = random.Random(7)
    ring, log = ByteRing(64), b""
    for _ in range(500):
        data = chance.randbytes(chance.randrange(30))
        ring.append(data)
        log += data
        assert ring.end == len(log)
        assert ring.read(ring.start) == log[ring.start :]
        assert ring.end - ring.start == min(64, len(log))

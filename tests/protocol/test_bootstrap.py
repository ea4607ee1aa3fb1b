"""The bootstrap line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from protocol.bootstrap import LINE_LIMIT, Bootstrap, CurveKeys, bootstrap_line, read_bootstrap
from protocol.errors import ProtocolViolation

Feed = Callable[[bytes], int]


@pytest.fixture
def feed() -> Iterator[Feed]:
    """Puts bytes into a pipe and returns the end to read from; the write end is closed behind them."""
    ends: list[int] = []

    def fill(data: bytes) -> int:
        read, write = os.pipe()
        ends.append(read)
        os.write(write, data)
        os.close(write)
        return read

    yield fill
    for end in ends:
        os.close(end)


FULL = Bootstrap("tcp://127.0.0.1:5", "w3", 17, 99, CurveKeys("a", "b", "c"), (("HF_TOKEN", "sécret"),))


@pytest.mark.parametrize("bootstrap", [Bootstrap("ipc:///run/x", "w", 1), FULL])
def test_round_trip(feed: Feed, bootstrap: Bootstrap) -> None:
    assert read_bootstrap(feed(bootstrap_line(bootstrap))) == bootstrap


def test_identity_is_name_and_epoch() -> None:
    assert FULL.identity == b"w3/17"


def test_reads_no_byte_behind_the_line(feed: Feed) -> None:
    pipe = feed(bootstrap_line(FULL) + b"rest")
    read_bootstrap(pipe)
    assert os.read(pipe, 10) == b"rest"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "end of file"),
        (b'{"address": "x"', "end of file"),
        (b"not json\n", "bootstrap line"),
        (b'{"address": "x", "name": "w"}\n', "epoch"),
        (b"x" * (LINE_LIMIT // 4), "end of file"),
    ],
)
def test_a_bad_line_is_a_violation(feed: Feed, data: bytes, why: str) -> None:
    with pytest.raises(ProtocolViolation, match=why):
        read_bootstrap(feed(data))

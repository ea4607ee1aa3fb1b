"""A transfer against a source that plays by the book, or does not: no process, no network."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from downloader.faults import DownloadFault
from downloader.hub import Body, Remote
from downloader.jobwire import Phase
from downloader.rate import Pacer
from downloader.store import Store
from downloader.transfer import Transfer
from protocol.download import Plan, PlanFile

CONTENT = random.Random(7).randbytes(10_000)


class Source:
    """A file of 10,000 bytes. `excess` are bytes sent beyond what was asked, `short` makes every answer empty."""

    def __init__(self, excess: bytes = b"", short: bool = False) -> None:
        self.asked: list[tuple[int, int, str]] = []
        self._excess = excess
        self._short = short

    def locate(self, repo: str, commit: str, path: str) -> Remote:
        return Remote("http://hub/file", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT), {})

    @contextlib.contextmanager
    def read(self, remote: Remote, start: int, end: int, if_range: str) -> Iterator[Body]:
        self.asked.append((start, end, if_range))
        sent = b"" if self._short else CONTENT[start:end] + self._excess
        yield Body(start, '"cdn"', iter([sent[:100], sent[100:]]))


def plan(*paths: str) -> Plan:
    blob = hashlib.sha256(CONTENT).hexdigest()
    return Plan("a/b:F32", "a/b", "main", "c" * 40, tuple(PlanFile(path, len(CONTENT), blob) for path in paths))


def transfer(root: Path, source: Source, *paths: str, window: int = 4_000) -> tuple[Transfer, list[tuple[int, Phase]]]:
    phases: list[tuple[int, Phase]] = []
    pacer = Pacer(lambda seconds: None, lambda: 0.0)
    report = lambda index, phase: phases.append((index, phase))  # noqa: E731
    return Transfer(
        Store(root), source, plan(*paths), pacer, report, lambda seconds: None, lambda: None, window
    ), phases


def test_no_answer_is_longer_than_a_window(tmp_path: Path) -> None:
    source = Source()
    work, phases = transfer(tmp_path, source, "m.gguf")
    assert work.run().read_bytes() == CONTENT
    assert source.asked == [(0, 4000, ""), (4000, 8000, '"cdn"'), (8000, 10000, '"cdn"')]
    assert [phase for _, phase in phases] == [
        Phase.LOCKED,
        Phase.ASKING,
        Phase.FETCHING,
        Phase.VERIFYING,
        Phase.DONE,
    ]


def test_a_partial_from_an_earlier_time_is_continued(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare("a/b")
    store.partial("a/b", hashlib.sha256(CONTENT).hexdigest()).write_bytes(CONTENT[:9_999])
    source = Source()
    work, _ = transfer(tmp_path, source, "m.gguf")
    assert work.run().read_bytes() == CONTENT
    assert source.asked == [(9_999, 10_000, "")]


def test_one_content_under_two_names_is_fetched_once(tmp_path: Path) -> None:
    source = Source()
    work, _ = transfer(tmp_path, source, "m.gguf", "copy/m.gguf", window=1 << 20)
    first = work.run()
    assert first.read_bytes() == (first.parent / "copy" / "m.gguf").read_bytes() == CONTENT
    assert len(source.asked) == 1


def test_a_damaged_partial_is_dropped_and_fetched_anew(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.prepare("a/b")
    store.partial("a/b", hashlib.sha256(CONTENT).hexdigest()).write_bytes(bytes(5_000))
    source = Source()
    work, _ = transfer(tmp_path, source, "m.gguf", window=1 << 20)
    assert work.run().read_bytes() == CONTENT
    assert [start for start, _, _ in source.asked] == [5_000, 0]


def test_a_source_that_sends_too_much_is_a_fault(tmp_path: Path) -> None:
    work, _ = transfer(tmp_path, Source(excess=b"x" * 9_000), "m.gguf", window=1 << 20)
    with pytest.raises(DownloadFault, match="more than 10000 bytes") as fault:
        work.run()
    assert fault.value.automatic
    assert not list(tmp_path.rglob("*.incomplete"))


def test_a_source_that_sends_nothing_is_a_fault(tmp_path: Path) -> None:
    source = Source(short=True)
    work, _ = transfer(tmp_path, source, "m.gguf")
    with pytest.raises(DownloadFault, match="sent nothing"):
        work.run()
    assert len(source.asked) == 1


def test_a_cache_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "models--a--b").write_text("in the way")
    work, _ = transfer(tmp_path, Source(), "m.gguf")
    with pytest.raises(DownloadFault, match="cannot be written"):
        work.run()

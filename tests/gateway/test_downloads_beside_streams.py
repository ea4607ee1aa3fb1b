"""A download beside running streams: they do not notice it."""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.eventually import eventually
from tests.fakes.hub_process import repository
from tests.gateway.process import packaged_model, running

STREAMS = 8
RATE = 50_000_000
ROUNDS = 2
SECONDS = 5.0
"""Length of a round without a download; one with a download is about as long."""

Span = tuple[float, float]


@contextlib.contextmanager
def hub_process() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.fakes.hub_process"]
    command += ["--size", str(int(RATE * SECONDS)), "--rate", str(RATE), "--repositories", str(ROUNDS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


class Reader:
    """One endless stream, with the moments at which its events came."""

    def __init__(self, url: str, stop: threading.Event) -> None:
        self.moments: list[float] = []
        self._url = url
        self._stop = stop
        self.thread = threading.Thread(target=self._read, daemon=True)

    def _read(self) -> None:
        body = {"model": "smol", "prompt": "Once upon a time", "stream": True, "n_predict": 4000, "ignore_eos": True}
        with httpx.Client(base_url=self._url, timeout=60) as client:
            while not self._stop.is_set():
                with client.stream("POST", "/completion", content=json.dumps(body)) as stream:
                    for line in stream.iter_lines():
                        if line.startswith("data:"):
                            self.moments.append(time.monotonic())
                        if self._stop.is_set():
                            return

    def gaps(self, span: Span) -> list[float]:
        inside = [moment for moment in self.moments if span[0] <= moment <= span[1]]
        return [after - before for before, after in itertools.pairwise(inside)]


def p99(readers: list[Reader], spans: list[Span]) -> float:
    gaps = [gap for reader in readers for span in spans for gap in reader.gaps(span)]
    assert len(gaps) > 200
    return statistics.quantiles(gaps, n=100)[98]


def fetch(http: httpx.Client, reference: str) -> Span:
    """Download to the end, and when that was."""
    begin = time.monotonic()
    number = http.post("/models", json={"model": reference}).raise_for_status().json()["id"]
    eventually(lambda: http.get(f"/downloads/{number}").json()["state"] == "done", 60, "the download ends")
    return begin, time.monotonic()


def rest() -> Span:
    begin = time.monotonic()
    eventually(lambda: time.monotonic() - begin > SECONDS, SECONDS + 5, "a while without a download")
    return begin, time.monotonic()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_longest_gaps_of_eight_streams_stay(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "smol.gguf").symlink_to(packaged_model().resolve())
    arguments = ("--models-dir", str(models), "--parallel", str(STREAMS), "--ctx-size", "65536", "--spare-workers", "0")
    stop = threading.Event()
    alone: list[Span] = []
    beside: list[Span] = []
    with hub_process() as hub, running(tmp_path / "home", *arguments, HF_ENDPOINT=hub, NO_PROXY="localhost") as gateway:
        readers = [Reader(gateway.url, stop) for _ in range(STREAMS)]
        with httpx.Client(base_url=gateway.url, timeout=60) as http:
            for reader in readers:
                reader.thread.start()
            eventually(lambda: all(len(reader.moments) > 20 for reader in readers), 60, "all streams run")
            # In turns, because the streams get slower as they get longer.
            for index in range(ROUNDS):
                alone.append(rest())
                beside.append(fetch(http, repository(index)))
        stop.set()
        for reader in readers:
            reader.thread.join(20)
    before, now = p99(readers, alone), p99(readers, beside)
    assert now <= 1.2 * before, f"p99 {before * 1e3:.0f} ms alone, {now * 1e3:.0f} ms beside downloads, {beside}"

"""A download beside running streams: they do not notice it."""

from __future__ import annotations

import contextlib
import itertools
import json
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.eventually import eventually
from tests.fakes.hub_process import repository
from tests.gateway.process import packaged_model, running

STREAMS = 8
RATE = 50_000_000
SIZE = 240_000_000
ROUNDS = 4
SECONDS = 8.0
"""Length of a round without a download; one with a download is about as long: it does not go at the hub's rate."""
LOOK = 0.5
"""Seconds between two questions to the gateway, asked in both kinds of rounds."""

Span = tuple[float, float]


@contextlib.contextmanager
def hub_process() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.fakes.hub_process"]
    command += ["--size", str(SIZE), "--rate", str(RATE), "--repositories", str(ROUNDS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        assert process.stdin is not None
        process.stdin.close()
        process.wait(10)


class Readers:
    """Endless streams, with the moments at which their events came. One thread that does next to nothing."""

    def __init__(self, url: str, count: int) -> None:
        self.streams: list[list[float]] = []
        """One list for each answer, also of those that have ended: between two answers is no gap."""
        self._port = urlsplit(url).port
        self._stop = threading.Event()
        self._selector = selectors.DefaultSelector()
        for _ in range(count):
            self._open()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join(10)
        for key in list(self._selector.get_map().values()):
            self._close(key.fileobj)
        self._selector.close()

    def gaps(self, span: Span) -> list[float]:
        return [
            after - before
            for moments in list(self.streams)
            for before, after in itertools.pairwise(list(moments))
            if span[0] <= before and after <= span[1]
        ]

    def _open(self) -> None:
        # Short, because a step takes longer the longer the sequences are.
        options = {"stream": True, "n_predict": 100, "ignore_eos": True}
        body = json.dumps({"model": "smol", "prompt": "Once upon a time", **options}).encode()
        head = f"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        connection = socket.create_connection(("127.0.0.1", self._port))
        connection.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)
        self.streams.append([])
        self._selector.register(connection, selectors.EVENT_READ, self.streams[-1])

    def _close(self, file: object) -> None:
        assert isinstance(file, socket.socket)
        self._selector.unregister(file)
        file.close()

    def _read(self) -> None:
        while not self._stop.is_set():
            for key, _ in self._selector.select(LOOK):
                assert isinstance(key.fileobj, socket.socket)
                received = key.fileobj.recv(65536)
                if b"data:" in received:
                    key.data.append(time.monotonic())
                elif not received:
                    self._close(key.fileobj)
                    self._open()


def p99(gaps: list[float]) -> float:
    assert len(gaps) > 100
    return statistics.quantiles(gaps, n=100)[98]


def look(http: httpx.Client) -> list[dict[str, object]]:
    """Ask as often with and without a download, so that the asking makes no difference."""
    pause = time.monotonic() + LOOK
    eventually(lambda: time.monotonic() > pause, LOOK + 5, "a moment")
    jobs: list[dict[str, object]] = http.get("/downloads").raise_for_status().json()["data"]
    return jobs


def fetch(http: httpx.Client, reference: str) -> Span:
    """Download to the end, and when that was."""
    begin = time.monotonic()
    number = http.post("/models", json={"model": reference}).raise_for_status().json()["id"]
    eventually(lambda: {job["id"]: job["state"] for job in look(http)}[number] == "done", 60, "the download ends")
    return begin, time.monotonic()


def rest(http: httpx.Client) -> Span:
    begin = time.monotonic()
    while time.monotonic() - begin < SECONDS:
        look(http)
    return begin, time.monotonic()


@pytest.mark.slow
@pytest.mark.timeout(480)
def test_the_longest_gaps_of_eight_streams_stay(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    (models / "smol.gguf").symlink_to(packaged_model().resolve())
    arguments = ("--models-dir", str(models), "--parallel", str(STREAMS), "--ctx-size", "65536", "--spare-workers", "0")
    alone: list[float] = []
    beside: list[float] = []
    with hub_process() as hub, running(tmp_path / "home", *arguments, HF_ENDPOINT=hub, NO_PROXY="localhost") as gateway:
        with httpx.Client(base_url=gateway.url, timeout=60) as http:
            http.post("/completion", json={"model": "smol", "prompt": "a", "n_predict": 2}).raise_for_status()
            readers = Readers(gateway.url, STREAMS)
            eventually(lambda: all(len(moments) > 20 for moments in readers.streams[:STREAMS]), 60, "all streams run")
            # In turns, and by medians, so that what else the machine does concerns both alike.
            for index in range(ROUNDS):
                alone.append(p99(readers.gaps(rest(http))))
                beside.append(p99(readers.gaps(fetch(http, repository(index)))))
        readers.close()
    before, now = statistics.median(alone), statistics.median(beside)
    words = [[f"{value * 1e3:.0f}" for value in values] for values in (alone, beside)]
    assert now <= 1.2 * before, f"p99 in ms: alone {words[0]}, beside downloads {words[1]}"

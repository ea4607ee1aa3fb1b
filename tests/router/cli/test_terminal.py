"""The commands in a terminal: a pseudo-terminal of a chosen width, with a person who types."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.router.cli.stub import Answer, Asked, StubGateway, chunk, entry, stream

COMMAND = (sys.executable, "-P", "-m", "router.cli.main")
LIMIT = 20.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")


class Terminal:
    """A running command and what it has shown."""

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self.raw = ""

    @property
    def shown(self) -> str:
        """The output without control sequences."""
        return _ESCAPES.sub("", self.raw)

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def expect(self, text: str, times: int = 1) -> None:
        """Read until `text` has been shown so often."""
        deadline = time.monotonic() + LIMIT
        while self.shown.count(text) < times:
            if not self._read(deadline):
                raise AssertionError(f"'{text}' was not shown {times} times in: {self.shown!r}")

    def end(self) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + LIMIT
        while self._read(deadline):
            pass
        return self.process.wait(timeout=LIMIT)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:
            # Linux reports the end of a pseudo-terminal as an error.
            return False
        self.raw += data.decode("utf-8", "replace")
        return bool(data)


@contextmanager
def terminal(
    gateway: StubGateway, *arguments: str, columns: int = 100, term: str = "xterm-256color"
) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    environment = {**os.environ, "LLAMAHERD_URL": gateway.url, "TERM": term, "PYTHONUNBUFFERED": "1"}
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        environment.pop(name, None)
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(ours)


def echo(asked: Asked) -> Answer:
    return stream(chunk(asked.body["messages"][-1]["content"].upper()), comments=("loading 42%",))


def test_a_chat_by_hand(gateway: StubGateway) -> None:
    gateway.on("POST", "/v1/chat/completions", echo)
    with terminal(gateway, "chat", "m") as session:
        session.expect("leaves.\n> ")
        session.type("good morning\n")
        session.expect("GOOD MORNING\n> ")
        session.type("/stats\n")
        session.expect("in all ")
        session.type("/system Be brief.\n")
        session.type("again\n")
        session.expect("AGAIN\n> ")
        session.type("\x04")
        assert session.end() == 0
    assert "loading 42%" in session.shown
    assert gateway.asked[-1].body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "again"},
    ]


def test_an_error_does_not_end_the_chat(gateway: StubGateway) -> None:
    gateway.on("POST", "/v1/chat/completions", Answer(503, {"error": {"message": "too busy"}}))
    with terminal(gateway, "chat", "m") as session:
        session.expect("> ")
        session.type("hello\n")
        session.expect("error: too busy\n> ")
        session.type("/exit\n")
        assert session.end() == 0


def test_a_load_shows_a_bar_that_moves(gateway: StubGateway) -> None:
    steps = [entry("m", "loading", status={"progress": part / 4, "stage": "text_model"}) for part in range(4)]
    gateway.on("GET", "/v1/models/m", [Answer(value=step) for step in (entry("m"), *steps, entry("m", "loaded"))])
    gateway.on("POST", "/models/load", {"success": True})
    with terminal(gateway, "load", "m") as session:
        assert session.end() == 0
    assert "text_model" in session.shown
    assert "m is loaded" in session.shown
    assert "\x1b[" in session.raw


def test_watching_draws_again_until_it_is_interrupted(gateway: StubGateway) -> None:
    gateway.on("GET", "/models", {"data": [entry("watched", "loaded")]})
    with terminal(gateway, "ps", "--watch", "--every", "0.05") as session:
        session.expect("watched", times=3)
        session.process.send_signal(signal.SIGINT)
        assert session.end() == 130
    assert "Traceback" not in session.shown
    assert "Aborted" not in session.shown


def test_downloads_are_watched_until_none_runs(gateway: StubGateway) -> None:
    def job(state: str, done: int) -> Answer:
        return Answer(value={"data": [{"id": "1", "reference": "u/r", "state": state, "done": done, "total": 100}]})

    gateway.on("GET", "/downloads", [job("downloading", 10), job("downloading", 50), job("done", 100)])
    with terminal(gateway, "downloads", "--watch", "--every", "0.01") as session:
        assert session.end() == 0
    assert "100%" in session.shown


def test_a_narrow_terminal_and_one_without_colour(gateway: StubGateway) -> None:
    name = "a-rather-long-name-for-a-model-of-some-kind"
    gateway.on("GET", "/models", {"data": [entry(name, "loaded", status={"reason": "word " * 30})]})
    for columns, term in ((20, "xterm"), (0, "xterm"), (80, "dumb")):
        with terminal(gateway, "models", columns=columns, term=term) as session:
            assert session.end() == 0
        assert "STATE" in session.shown
        assert "Traceback" not in session.shown
        if term == "dumb":
            assert "\x1b[" not in session.raw

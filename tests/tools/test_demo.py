from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.router.cli.stub import Answer, StubGateway, chunk, serving, stream
from tests.tools import demo


def test_an_answer_is_printed_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(StubGateway()) as gateway:
        gateway.on("POST", "/v1/chat/completions", stream(chunk("Par"), chunk("is.")))
        assert demo.ask(int(gateway.url.rpartition(":")[2]), "Which city?") == "Paris."
        assert gateway.asked[0].body["messages"][-1] == {"role": "user", "content": "Which city?"}
    assert capsys.readouterr().out == "Paris.\n"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (stream({"error": {"message": "the worker died"}}), "the worker died"),
        (stream(chunk("Par"), done=False), "broke off"),
        (Answer(503, {"error": {"message": "busy"}}), "503"),
    ],
)
def test_no_answer_is_a_failure(answer: Answer, reason: str) -> None:
    with serving(StubGateway()) as gateway:
        gateway.on("POST", "/v1/chat/completions", answer)
        with pytest.raises(SystemExit, match=reason):
            demo.ask(int(gateway.url.rpartition(":")[2]), "?")


def test_a_gateway_that_ends_before_it_is_ready() -> None:
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(5)"])
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(SystemExit, match="exit code 5"):
            demo.wait_until_ready(unused.getsockname()[1], process)
    process.wait()


@pytest.mark.model
def test_the_whole_demonstration() -> None:
    """What `make demo ONCE=1` does after the installation."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-P", str(Path(demo.__file__)), "--port", str(port), "--once"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert result.returncode == 0, result.stderr
    assert "Paris" in result.stdout

"""Starts either server with one model file, by the same command line."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.eventually import eventually

START_TIMEOUT = 60.0
STOP_TIMEOUT = 30.0

OURS = (sys.executable, "-P", "-m", "router.cli.main", "serve")


@dataclass(frozen=True)
class Server:
    """A running server and the model that is meant; a server with a single model takes any name."""

    client: httpx.Client
    model: str = "the only one"

    def of(self, model: str) -> Server:
        """The same server, for another model."""
        return Server(self.client, model)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON of an answer. Raises `httpx.HTTPStatusError` with the server's reason."""
        answer = self.client.post(path, json={"model": self.model, **body})
        if answer.is_error:
            raise httpx.HTTPStatusError(f"{answer.status_code}: {answer.text}", request=answer.request, response=answer)
        return answer.json()


def command_line(options: Mapping[str, str]) -> list[str]:
    """Options by their long names, `true` for a switch."""
    return [part for name, value in options.items() for part in (f"--{name}", *value.split(" ")) if part != "true"]


def llama_server() -> str:
    """The program to compare with, from the environment variable LLAMA_SERVER; empty if there is none."""
    return os.environ.get("LLAMA_SERVER", "")


@contextlib.contextmanager
def serving(program: tuple[str, ...], model: Path, options: Mapping[str, str]) -> Iterator[Server]:
    """A server that has the model loaded; it is stopped at the end."""
    with tempfile.TemporaryDirectory(prefix="peer-") as home, open(Path(home) / "log", "wb") as log:
        variables = {"HOME": home, "XDG_STATE_HOME": home, "XDG_RUNTIME_DIR": home, "HF_HOME": home}
        port = _free_port()
        command = [*program, "--host", "127.0.0.1", "--port", str(port), "-m", str(model)]
        command += command_line(options)
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **variables})
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=100) as client:
                eventually(lambda: _answers(client) or process.poll() is not None, START_TIMEOUT, "the server")
                if process.poll() is not None:
                    text = (Path(home) / "log").read_text(errors="replace")
                    raise RuntimeError(f"ended with {process.returncode}:\n{text[-3000:]}")
                yield Server(client)
        finally:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

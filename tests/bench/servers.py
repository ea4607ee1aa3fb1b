"""Starts and stops the two gateways with the same files, threads, slots and context."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.bench.client import call

START_TIMEOUT = 60.0


@dataclass(frozen=True)
class Setting:
    """What both are started with; 0 slots or cells = each one's default. `models_max` 0 = no limit by count."""

    models_dir: Path
    threads: int = 2
    slots: int = 4
    ctx_size: int = 32768
    models_max: int = 4
    extra: tuple[str, ...] = ()
    """Further options for llamaherd."""
    peer_extra: tuple[str, ...] = ()
    """The same for llama-server."""


@dataclass(frozen=True)
class Gateway:
    name: str
    port: int
    pid: int

    def resident_mb(self) -> float:
        return float(psutil.Process(self.pid).memory_info().rss) / 1e6


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(name: str, setting: Setting, port: int, llama_server: str) -> list[str]:
    program = [sys.executable, "-P", "-m", "router.cli.main", "serve"]
    if name == "llama-server":
        program = [llama_server, "--metrics"]
    return [
        *program,
        *("--host", "127.0.0.1", "--port", str(port), "--models-dir", str(setting.models_dir)),
        *("--models-max", str(setting.models_max), "--threads", str(setting.threads)),
        *(("--parallel", str(setting.slots)) if setting.slots else ()),
        *(("--ctx-size", str(setting.ctx_size)) if setting.ctx_size else ()),
        *(setting.extra if name == "llamaherd" else setting.peer_extra),
    ]


@contextlib.asynccontextmanager
async def running(name: str, setting: Setting, llama_server: str) -> AsyncIterator[Gateway]:
    """Yield the started gateway; it is stopped by SIGTERM, and killed only if it does not end."""
    port = _free_port()
    with tempfile.TemporaryDirectory(prefix="bench-") as home, open(Path(home) / "log", "wb") as log:
        environment = {**os.environ, "XDG_STATE_HOME": home, "LLAMAHERD_STATE_DIR": home, "HF_HOME": home}
        process = subprocess.Popen(
            command(name, setting, port, llama_server), stdout=log, stderr=subprocess.STDOUT, env=environment
        )
        try:
            await _until_healthy(port, process, Path(home) / "log")
            yield Gateway(name, port, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


async def _until_healthy(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"ended with {process.returncode}:\n{log.read_text(errors='replace')[-3000:]}")
        with contextlib.suppress(OSError, IndexError, ValueError):
            if (await call(port, "GET", "/health"))[0] == 200:
                return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"not healthy within {START_TIMEOUT} s:\n{log.read_text(errors='replace')[-3000:]}")

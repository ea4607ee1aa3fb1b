"""Pulling the plug on the worker and on the router."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil
import pytest

from tests.eventually import eventually
from tests.gateway.process import running

pytestmark = pytest.mark.model

CHAT = "/v1/chat/completions"
ENDLESS = {
    "model": "smol",
    "messages": [{"role": "user", "content": "Tell a story."}],
    "stream": True,
    "max_tokens": 4000,
    "ignore_eos": True,
}


def events(response: httpx.Response) -> list[str]:
    return [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]


def test_a_killed_worker_ends_its_streams_with_an_error_and_is_replaced(models_dir: Path, tmp_path: Path) -> None:
    with (
        running(tmp_path, "--models-dir", str(models_dir)) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as http,
    ):
        with http.stream("POST", CHAT, json=ENDLESS) as response:
            lines = response.iter_lines()
            while '"content":"' not in next(lines):
                pass
            gateway.worker_of(models_dir / "smol.gguf").send_signal(signal.SIGKILL)
            killed = time.monotonic()
            rest = [line for line in lines if line.startswith("data: ")]
            took = time.monotonic() - killed
        assert "error" in json.loads(rest[-1].removeprefix("data: "))
        assert took < 1
        again = http.post(CHAT, json=ENDLESS | {"stream": False, "max_tokens": 2})
        assert again.status_code == 200


@pytest.mark.parametrize("loading", [True, False])
def test_a_killed_router_leaves_no_child(models_dir: Path, tmp_path: Path, loading: bool) -> None:
    with (
        running(tmp_path, "--models-dir", str(models_dir)) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as http,
    ):
        http.post("/models/load", json={"model": "smol"}).raise_for_status()
        if not loading:
            http.post(CHAT, json=ENDLESS | {"stream": False, "max_tokens": 1}).raise_for_status()
        family = gateway.children()
        assert family
        gateway.process.kill()
        gateway.process.wait()
        eventually(lambda: not alive(family), 2, "all children are gone")


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_and_exits_zero(models_dir: Path, tmp_path: Path, signum: int) -> None:
    with (
        running(tmp_path, "--models-dir", str(models_dir)) as gateway,
        httpx.Client(base_url=gateway.url, timeout=60) as http,
        http.stream("POST", CHAT, json=ENDLESS | {"max_tokens": 60}) as response,
    ):
        lines = response.iter_lines()
        while '"content":"' not in next(lines):
            pass
        family = gateway.children()
        gateway.process.send_signal(signum)
        rest = list(lines)
        assert "data: [DONE]" in rest
        assert gateway.process.wait(30) == 0
        assert not alive(family)
        assert not list(tmp_path.rglob("*.sock"))


def test_control_c_in_a_terminal(models_dir: Path, tmp_path: Path) -> None:
    """Ctrl-C reaches the whole foreground process group, so the children must not take it for themselves."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-P", "-m", "router.cli.main", "serve", "--port", "0", "--models-dir", str(models_dir)]
    home = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    process = subprocess.Popen(
        command,
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env={**os.environ, **home},
        start_new_session=True,
        preexec_fn=lambda: _take_terminal(follower),
    )
    os.close(follower)
    seen = b""
    try:
        while b"listening on" not in seen:
            seen += os.read(leader, 4096)
        family = psutil.Process(process.pid).children(recursive=True)
        os.write(leader, b"\x03")
        assert process.wait(30) == 0
        assert not alive(family)
    finally:
        os.close(leader)
        if process.poll() is None:
            process.kill()
            process.wait()


def _take_terminal(descriptor: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


def alive(family: list[psutil.Process]) -> list[psutil.Process]:
    return [child for child in family if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]

"""The gateway as a service: what the service manager hears, which sockets it takes, which key it makes."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest

from tests import factory
from tests.eventually import eventually


class Manager:
    """A service manager's end of the notification socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(30)

    def until(self, word: str) -> list[str]:
        """The lines of the next message that has `word` among them; others are dropped."""
        while True:
            lines = self._socket.recv(8192).decode().split("\n")
            if word in lines:
                return lines

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify.sock")
    yield manager
    manager.close()


class Gateway:
    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def url(self) -> str:
        """Where it listens; waits until it does."""
        eventually(lambda: "listening on" in self.log or self.process.poll() is not None, 60, "the gateway listens")
        found = re.search(r"listening on (https?://[\d.]+:\d+)", self.log)
        assert found is not None, self.log
        return found[1].replace("0.0.0.0", "127.0.0.1")


@contextmanager
def serving(
    folder: Path, *options: str, passed: int | None = None, environ: dict[str, str] | None = None
) -> Iterator[Gateway]:
    """A gateway without models, in a process of its own. `passed` is a listening descriptor, as systemd passes it."""
    models = folder / "models"
    models.mkdir(exist_ok=True)
    command = [sys.executable, "-P", "-m", "router.cli.main", "serve", "--models-dir", str(models), "--no-hf-cache"]
    command += ["--spare-workers", "0", "--state-dir", str(folder / "state"), *options]
    if passed is not None:
        script = f'export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" "$@" 3<&{passed}'
        command = ["bash", "-c", script, *command]
    log = folder / "log"
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LLAMAHERD_", "LLAMA_ARG_"))}
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stderr=output,
            stdout=output,
            text=True,
            env={**clean, "XDG_RUNTIME_DIR": str(folder), **(environ or {})},
            pass_fds=[passed] if passed is not None else [],
        )
    try:
        yield Gateway(process, log)
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()
            process.wait()


def test_the_service_manager_hears_of_each_step(tmp_path: Path, manager: Manager) -> None:
    environ = {"NOTIFY_SOCKET": str(manager.path), "WATCHDOG_USEC": "400000"}
    with serving(tmp_path, "--port", "0", environ=environ) as gateway:
        ready = manager.until("READY=1")
        assert f"MAINPID={gateway.process.pid}" in ready
        assert "STATUS=0 loaded, 0 running, 0 queued" in ready
        for _ in range(3):
            manager.until("WATCHDOG=1")
        gateway.process.send_signal(signal.SIGHUP)
        assert manager.until("RELOADING=1")[1].startswith("MONOTONIC_USEC=")
        manager.until("READY=1")
        gateway.process.terminate()
        assert "STATUS=waiting for running requests" in manager.until("STOPPING=1")
        assert gateway.process.wait(30) == 0, gateway.log


def test_a_passed_socket_is_served_and_stays_open_over_the_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with serving(tmp_path, "--port", "1", passed=server.fileno()) as gateway:
            assert gateway.url == f"http://127.0.0.1:{port}"
            assert httpx.get(f"{gateway.url}/health").status_code == 200
        with serving(tmp_path, passed=server.fileno()) as gateway:
            assert httpx.get(f"{gateway.url}/ready", timeout=30).status_code == 200


def test_a_passed_socket_of_the_wrong_kind_is_an_error(tmp_path: Path) -> None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram,
        serving(tmp_path, passed=datagram.fileno()) as it,
    ):
        assert it.process.wait(60) == 1
        assert "is not a listening stream socket" in it.log


def test_a_public_address_gets_a_key_that_is_shown_once(tmp_path: Path) -> None:
    options = ("--host", "0.0.0.0", "--port", "0", "--log-format", "json")
    with serving(tmp_path, *options) as gateway:
        url = gateway.url
        key = (tmp_path / "state" / "api-key").read_text().strip()
        assert gateway.log.count(key) == 1
        assert f"API key, shown this once: {key}\n" in gateway.log
        assert stat.S_IMODE((tmp_path / "state" / "api-key").stat().st_mode) == 0o600
        assert httpx.get(f"{url}/models").status_code == 401
        assert httpx.get(f"{url}/models", headers={"X-Api-Key": key}).status_code == 200
        assert httpx.get(f"{url}/health").status_code == 200
        log = httpx.get(f"{url}/logs", headers={"X-Api-Key": key}).text
        assert "listening on" in log
        assert key not in log
    with serving(tmp_path, *options) as gateway:
        assert httpx.get(f"{gateway.url}/models", headers={"X-Api-Key": key}).status_code == 200
        assert key not in gateway.log


def test_a_public_socket_from_systemd_gets_a_key_too(tmp_path: Path) -> None:
    with (
        socket.create_server(("0.0.0.0", 0)) as server,
        serving(tmp_path, "--host", "127.0.0.1", passed=server.fileno()) as gateway,
    ):
        assert httpx.get(f"{gateway.url}/models").status_code == 401


def test_insecure_means_no_key(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0", "--port", "0", "--insecure") as gateway:
        assert httpx.get(f"{gateway.url}/models").status_code == 200
        assert not (tmp_path / "state" / "api-key").exists()


def test_a_bad_key_file_ends_the_start_with_a_plain_message(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0", "--api-key-file", str(tmp_path / "nowhere")) as gateway:
        assert gateway.process.wait(60) == 1
        assert "cannot read the key file" in gateway.log
        assert "Traceback" not in gateway.log


@pytest.mark.model
def test_no_secret_reaches_a_worker_or_the_log(tmp_path: Path) -> None:
    secrets = {
        "LLAMAHERD_API_KEY": "sk-very-secret-key-1",
        "HF_TOKEN": "hf_verysecrettoken2",
        "MY_PASSWORD": "secret-3",
    }
    (tmp_path / "models").mkdir()
    factory.language_model(tmp_path / "models" / "tiny.gguf")
    options = ("--port", "0", "--ctx-size", "512", "--log-level", "debug")
    with serving(tmp_path, *options, environ=secrets) as gateway:
        client = httpx.Client(
            base_url=gateway.url, headers={"Authorization": f"Bearer {secrets['LLAMAHERD_API_KEY']}"}, timeout=60
        )
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 4}
        assert client.post("/v1/completions", json=body).status_code == 200
        children = psutil.Process(gateway.process.pid).children(recursive=True)
        assert children
        for child in children:
            seen = " ".join(child.cmdline()) + " ".join(f"{name}={value}" for name, value in child.environ().items())
            assert not any(secret in seen for secret in secrets.values()), child
        own = client.get("/logs").text + client.get("/props").text + client.get("/models").text
        for secret in secrets.values():
            assert secret not in gateway.log
            assert secret not in own
        client.close()

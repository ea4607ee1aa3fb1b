from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from router.config.settings import Settings
from tests.deploy.files import DEPLOY, unit_settings
from tests.router.ops.test_process import Manager

UNITS = DEPLOY / "systemd"
STOP_LADDER = 20.0
"""Seconds that ending the workers may take on top of the drain."""

needs_analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit files as an administrator would lay them, with a program that exists on this machine."""
    for name in ("llamaherd.service", "llamaherd.socket"):
        text = (UNITS / name).read_text().replace("/opt/llamaherd/bin/llamaherd", shutil.which("true") or "/bin/true")
        (tmp_path / name).write_text(text)
    return tmp_path


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"SYSTEMD_COLORS": "0", "PATH": "/usr/bin:/bin"},
    )


@needs_analyze
def test_the_units_are_correct(installed: Path) -> None:
    done = analyze("verify", "--man=no", installed / "llamaherd.service", installed / "llamaherd.socket")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_analyze
@pytest.mark.parametrize("gpu", [False, True])
def test_the_sandbox_is_tight(installed: Path, gpu: bool) -> None:
    if gpu:
        folder = installed / "llamaherd.service.d"
        folder.mkdir()
        shutil.copy(UNITS / "gpu.conf", folder)
    done = analyze("security", "--offline=yes", "--threshold=25", installed / "llamaherd.service")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr


def test_the_drain_fits_into_the_stop_time() -> None:
    settings = unit_settings(UNITS / "llamaherd.service")
    defaults = Settings()
    assert float(settings["TimeoutStopSec"][0]) > defaults.shutdown_delay + defaults.drain_timeout + STOP_LADDER


def test_only_the_router_is_signalled_and_a_killed_worker_does_not_end_it() -> None:
    settings = unit_settings(UNITS / "llamaherd.service")
    assert settings["Type"] == ["notify"]
    assert settings["KillMode"] == ["mixed"]
    assert settings["OOMPolicy"] == ["continue"]
    assert float(settings["WatchdogSec"][0]) >= 10


def test_no_key_is_in_the_environment_file() -> None:
    lines = [line for line in (UNITS / "llamaherd.env").read_text().splitlines() if line and not line.startswith("#")]
    assert lines
    assert not any("KEY" in line for line in lines)


def test_the_service_starts_as_the_unit_says(tmp_path: Path) -> None:
    """`ExecStart` and the environment file, in the folders that systemd would make, with a manager that listens."""
    settings = unit_settings(UNITS / "llamaherd.service")
    program, *arguments = settings["ExecStart"][0].split()
    assert Path(program).name == "llamaherd"
    environ = {
        name: value[0]
        for name, value in unit_settings(UNITS / "llamaherd.env").items()
        if name.startswith("LLAMAHERD_")
    }
    assert environ.pop("LLAMAHERD_MODELS_DIR") == "/srv/models"
    folders = {name: tmp_path / name for name in ("models", "state", "run", "home")}
    for folder in folders.values():
        folder.mkdir(mode=0o700)
    manager = Manager(tmp_path / "notify.sock")
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "router.cli.main", *arguments],
        env={
            **environ,
            "PATH": os.environ["PATH"],
            "LLAMAHERD_MODELS_DIR": str(folders["models"]),
            "LLAMAHERD_PORT": "0",
            "NOTIFY_SOCKET": str(manager.path),
            "WATCHDOG_USEC": str(int(float(settings["WatchdogSec"][0]) * 1_000_000)),
            "STATE_DIRECTORY": str(folders["state"]),
            "RUNTIME_DIRECTORY": str(folders["run"]),
            "HOME": str(folders["home"]),
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        manager.until("READY=1")
        process.terminate()
        manager.until("STOPPING=1")
        _, log = process.communicate(timeout=60)
        assert process.returncode == 0, log
        assert not folders["run"].exists() or not list(folders["run"].iterdir())

    finally:
        process.kill()
        process.wait()
        manager.close()

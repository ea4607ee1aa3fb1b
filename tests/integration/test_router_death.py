"""Whatever kills the router takes its children along; what it left behind is swept by the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.scheduling.events import Child
from router.supervision.runtime import RuntimeFolder, RuntimeFolderError, start_time, sweep_siblings
from tests.eventually import eventually
from tests.fakes.herd import ROOT


def start_router(folder: Path, fault: str) -> tuple[subprocess.Popen[str], list[int]]:
    router = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.router_process", str(folder), fault],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert router.stdout is not None
    pids = [int(word) for word in router.stdout.readline().split()]
    router.stdout.close()
    assert len(pids) == 2
    return router, pids


@pytest.mark.parametrize(
    ("fault", "number"),
    [
        ("", signal.SIGKILL),
        ("hang_on_load", signal.SIGKILL),
        pytest.param("slow_load", signal.SIGKILL, marks=pytest.mark.slow),
        ("ignore_sigterm,ignore_sigabrt,hang_on_load", signal.SIGABRT),
    ],
)
def test_no_child_outlives_its_router(tmp_path: Path, fault: str, number: signal.Signals) -> None:
    router, pids = start_router(tmp_path, fault)
    router.send_signal(number)
    assert router.wait(5) == -number
    eventually(lambda: not any(start_time(pid) for pid in pids), 2, "the children are gone")
    RuntimeFolder(tmp_path / "run").close()  # the next router takes the folder over, and its clean end removes it
    assert not (tmp_path / "run").exists()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own that does not end by itself."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def test_orphans_of_a_dead_router_are_swept(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    dead = RuntimeFolder(tmp_path / "llamaherd-0-111")
    dead.note(Child("w1", 1), sleeper.pid)
    os.close(dead._lock)  # as the kernel does when a process ends
    assert sweep_siblings(tmp_path / "llamaherd-0-222") == [sleeper.pid]
    assert sleeper.wait(5) == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_the_same_folder_is_swept_when_it_is_used_again(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    dead = RuntimeFolder(tmp_path / "run")
    dead.note(Child("w1", 1), sleeper.pid)
    os.close(dead._lock)
    again = RuntimeFolder(tmp_path / "run")
    assert again.orphans == [sleeper.pid]
    assert sleeper.wait(5) == -signal.SIGKILL
    again.close()


def test_a_living_router_and_a_reused_process_id_are_left_alone(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    living = RuntimeFolder(tmp_path / "llamaherd-0-111")
    living.note(Child("w1", 1), sleeper.pid)
    assert sweep_siblings(tmp_path / "llamaherd-0-222") == []
    with pytest.raises(RuntimeFolderError, match="another gateway"):
        RuntimeFolder(tmp_path / "llamaherd-0-111")
    living.close()
    dead = RuntimeFolder(tmp_path / "llamaherd-0-333")
    (dead.path / "w1-1.child").write_text(f'{{"pid": {sleeper.pid}, "start_time": "1"}}')
    (dead.path / "w2-1.child").write_text("not json")
    os.close(dead._lock)
    assert sweep_siblings(tmp_path / "llamaherd-0-222") == []
    assert sleeper.poll() is None


def test_the_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    loose = tmp_path / "run"
    loose.mkdir(mode=0o755)
    folder = RuntimeFolder(loose)
    assert loose.stat().st_mode & 0o777 == 0o700
    folder.close()
    (tmp_path / "file").write_text("")
    with pytest.raises(RuntimeFolderError):
        RuntimeFolder(tmp_path / "file" / "run")

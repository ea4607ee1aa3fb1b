from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.notify import Notifier, listen_sockets, watchdog_interval


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(5)
        yield receiver


def lines(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().split("\n")


def test_each_state_reaches_the_manager(manager: socket.socket) -> None:
    notifier = Notifier(manager.getsockname())
    notifier.ready("0 loaded,\n0 queued")
    assert lines(manager) == ["READY=1", f"MAINPID={os.getpid()}", "STATUS=0 loaded, 0 queued"]
    notifier.status("2 loaded, 1 queued")
    assert lines(manager) == ["STATUS=2 loaded, 1 queued"]
    notifier.watchdog()
    assert lines(manager) == ["WATCHDOG=1"]
    notifier.reloading()
    first, second = lines(manager)
    assert first == "RELOADING=1"
    assert int(second.removeprefix("MONOTONIC_USEC=")) > 0
    notifier.extend_timeout(1.5)
    assert lines(manager) == ["EXTEND_TIMEOUT_USEC=1500000"]
    notifier.stopping("draining")
    assert lines(manager) == ["STOPPING=1", "STATUS=draining"]
    notifier.close()


def test_abstract_addresses_work() -> None:
    name = f"llamaherd-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0{name}")
        receiver.settimeout(5)
        notifier = Notifier(f"@{name}")
        notifier.watchdog()
        assert lines(receiver) == ["WATCHDOG=1"]
        notifier.close()


def test_without_a_manager_nothing_happens() -> None:
    notifier = Notifier.from_environment({})
    assert not notifier.active
    notifier.ready()
    notifier.close()


def test_a_manager_that_is_gone_is_logged_and_not_raised(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    notifier = Notifier(str(tmp_path / "nobody"))
    notifier.watchdog()
    notifier.close()
    assert "cannot notify" in caplog.text


def test_a_manager_that_does_not_read_never_blocks(manager: socket.socket) -> None:
    notifier = Notifier(manager.getsockname())
    for _ in range(2000):
        notifier.status("x" * 1000)
    notifier.close()


def test_children_do_not_inherit_the_variables() -> None:
    environ = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid()), "KEPT": "1"}
    Notifier.from_environment(environ).close()
    assert watchdog_interval(environ) == 15
    assert listen_sockets(environ) == []
    assert environ == {"KEPT": "1"}


@pytest.mark.parametrize(
    "environ", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}]
)
def test_no_watchdog(environ: dict[str, str]) -> None:
    assert watchdog_interval(environ) is None


_ACTIVATED = """
import os, socket, sys
from router.notify import listen_sockets
environ = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": sys.argv[1], "LISTEN_FDNAMES": "http"}
try:
    sockets = listen_sockets(environ)
except OSError as error:
    sys.exit(str(error))
print([s.getsockname()[1] for s in sockets], [s.getblocking() for s in sockets], os.get_inheritable(3), environ)
"""


def activate(passed: socket.socket) -> subprocess.CompletedProcess[str]:
    """Run a process with the socket as descriptor 3, as systemd does."""
    script = f'exec {sys.executable} -c "$CODE" 1 3<&{passed.fileno()}'
    return subprocess.run(
        ["bash", "-c", script],
        pass_fds=[passed.fileno()],
        env={**os.environ, "CODE": _ACTIVATED},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_passed_listening_socket_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ran = activate(server)
        assert ran.returncode == 0, ran.stderr
        assert ran.stdout.strip() == f"[{server.getsockname()[1]}] [False] False {{}}"


def test_a_passed_socket_that_does_not_listen_is_an_error() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        ran = activate(datagram)
        assert ran.returncode == 1
        assert "descriptor 3 passed by systemd is not a listening stream socket" in ran.stderr


def test_sockets_meant_for_another_process_are_left_alone() -> None:
    assert listen_sockets({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) == []

"""Words with systemd: readiness, status and watchdog by datagram, and sockets that it opened for us.

Everything is silent and harmless where systemd is not there.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import MutableMapping

logger = logging.getLogger(__name__)

FIRST_FD = 3
"""Where systemd begins to number the sockets that it passes."""


class Notifier:
    """Sends state to the socket in `NOTIFY_SOCKET`. A message that cannot be sent is logged, never raised."""

    def __init__(self, address: str = "") -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) if address else None
        if self._socket is not None:
            # A full queue of the manager must not stop the event loop.
            self._socket.setblocking(False)

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Notifier:
        """Takes the variable out, so that no child speaks in our name."""
        return cls(environ.pop("NOTIFY_SOCKET", ""))

    @property
    def active(self) -> bool:
        return self._socket is not None

    def ready(self, status: str = "") -> None:
        """Started, or done with reloading: sockets listen."""
        self._send("READY=1", f"MAINPID={os.getpid()}", *_status(status))

    def status(self, status: str) -> None:
        """One line for `systemctl status`."""
        self._send(*_status(status))

    def watchdog(self) -> None:
        self._send("WATCHDOG=1")

    def reloading(self) -> None:
        """Must be followed by `ready`."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self, status: str = "") -> None:
        self._send("STOPPING=1", *_status(status))

    def extend_timeout(self, seconds: float) -> None:
        """Ask for this much more time from now on, while starting or stopping."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, *lines: str) -> None:
        if self._socket is None or not lines:
            return
        try:
            self._socket.sendto("\n".join(lines).encode(), self._address)
        except OSError as error:
            logger.warning("cannot notify the service manager: %s", error)


def _status(status: str) -> tuple[str, ...]:
    return (f"STATUS={' '.join(status.split())}",) if status else ()


def watchdog_interval(environ: MutableMapping[str, str]) -> float | None:
    """Seconds between two signs of life: half of what systemd waits for. None if it does not watch this process."""
    usec = environ.pop("WATCHDOG_USEC", "")
    pid = environ.pop("WATCHDOG_PID", "")
    if not usec.isdecimal() or int(usec) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(usec) / 2_000_000


def listen_sockets(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """The listening stream sockets that systemd passed to this process; none if it passed none.

    Raises `OSError` for a passed descriptor that is not a listening stream socket: the socket unit is wrong.
    """
    pid = environ.pop("LISTEN_PID", "")
    count = environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdecimal():
        return []
    sockets = []
    for descriptor in range(FIRST_FD, FIRST_FD + int(count)):
        os.set_inheritable(descriptor, False)
        passed = socket.socket(fileno=descriptor)
        if passed.type != socket.SOCK_STREAM or not passed.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise OSError(f"descriptor {descriptor} passed by systemd is not a listening stream socket")
        passed.setblocking(False)
        sockets.append(passed)
    return sockets

"""The sockets that the gateway listens on: TCP addresses and unix sockets."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Sequence
from pathlib import Path

from router.security.origins import is_loopback_name

BACKLOG = 2048


class CannotListen(Exception):
    """An address cannot be listened on; the message says which and why."""


class Listeners:
    """Bound sockets and their addresses, for as long as the gateway runs. `tls` is how TCP is spoken on them."""

    def __init__(self, tls: bool = False) -> None:
        self._scheme = "https" if tls else "http"
        self.sockets: list[socket.socket] = []
        self._paths: list[tuple[Path, int]] = []

    @classmethod
    def bind(cls, hosts: Sequence[str], port: int, also: Sequence[str] = (), tls: bool = False) -> Listeners:
        """Bind every host (to `port`, unless it is a path ending in `.sock`) and every `host:port` of `also`.

        Raises `CannotListen`, with everything closed again.
        """
        listeners = cls(tls)
        try:
            for host in hosts:
                listeners._open(host, port)
            for address in also:
                listeners._open(*split_address(address))
        except CannotListen:
            listeners.close()
            raise
        return listeners

    @classmethod
    def adopt(cls, sockets: Sequence[socket.socket], tls: bool = False) -> Listeners:
        """Sockets that listen already, such as the service manager's; their files, if they have any, are not ours."""
        listeners = cls(tls)
        listeners.sockets.extend(sockets)
        return listeners

    @property
    def local(self) -> bool:
        """Whether only this machine reaches them, by what the sockets are bound to."""
        return all(sock.family == socket.AF_UNIX or is_loopback_name(sock.getsockname()[0]) for sock in self.sockets)

    @property
    def addresses(self) -> list[str]:
        """URLs, or paths with `unix:` before them."""
        return [_address(sock, self._scheme) for sock in self.sockets]

    def close(self) -> None:
        """Close what is open and remove the socket files that are still ours."""
        for sock in self.sockets:
            sock.close()
        for path, inode in self._paths:
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_ino == inode:
                    path.unlink()
        self.sockets.clear()
        self._paths.clear()

    def _open(self, host: str, port: int) -> None:
        try:
            if host.endswith(".sock"):
                self._open_unix(Path(host))
            else:
                self._open_tcp(host, port)
        except OSError as error:
            where = host if host.endswith(".sock") else f"{host}:{port}"
            hint = "; is another server running there?" if error.errno == errno.EADDRINUSE else ""
            raise CannotListen(f"cannot listen on {where}: {error.strerror or error}{hint}") from error

    def _open_tcp(self, host: str, port: int) -> None:
        bound = port
        for family, kind, protocol, _, address in _unique(host, port):
            sock = socket.socket(family, kind, protocol)
            self.sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setblocking(False)
            # With port 0 the second family gets the port that the first one was given.
            sock.bind((address[0], bound, *address[2:]))
            bound = sock.getsockname()[1]
            sock.listen(BACKLOG)

    def _open_unix(self, path: Path) -> None:
        _remove_stale(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sockets.append(sock)
        sock.setblocking(False)
        # The file must never be open to others, not even for the moment between bind and chmod.
        mask = os.umask(0o177)
        try:
            sock.bind(str(path))
        finally:
            os.umask(mask)
        self._paths.append((path, path.stat().st_ino))
        sock.listen(BACKLOG)


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port`, a port alone (on the loopback), or a `.sock` path."""
    if address.endswith(".sock"):
        return address, 0
    host, colon, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise CannotListen(f"cannot listen on {address}: expected host:port, a port or a path ending in .sock")
    return host.strip("[]") if colon and host else "127.0.0.1", int(port)


def _unique(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys(found))  # type: ignore[arg-type]


def _remove_stale(path: Path) -> None:
    """Remove a socket file that nobody listens on any more; leave a live one, or another kind of file, alone."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise OSError(errno.EEXIST, "a file that is no socket is in the way")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _address(sock: socket.socket, scheme: str) -> str:
    name = sock.getsockname()
    if sock.family == socket.AF_UNIX:
        return f"unix:{name}"
    host = f"[{name[0]}]" if sock.family == socket.AF_INET6 else name[0]
    return f"{scheme}://{host}:{name[1]}"

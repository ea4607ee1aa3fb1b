"""The runtime folder: the socket, a note of each child, and the sweep of what a killed router left behind."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import signal
import stat
from pathlib import Path

import msgspec
from msgspec import Struct

from router.scheduling.events import Child

log = logging.getLogger("llamaherd.supervision")

_LOCK = "router.lock"
_SOCKET_PATH_LIMIT = 100
"""Bytes of a path that a Unix socket can have, with some room for the file's name."""


class RuntimeFolderError(Exception):
    """The runtime folder cannot be used; the message says why and what to do."""


class ChildNote(Struct, frozen=True):
    """Who a child process is: its id and when the kernel started it, so that a reused id is not mistaken for it."""

    pid: int
    start_time: str


def start_time(pid: int) -> str:
    """When the kernel started a process, in its own unit; empty if there is none (any more)."""
    try:
        content = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The second field is a name in parentheses and may hold anything; the 22nd is the start time.
    fields = content[content.rindex(")") + 2 :].split()
    return "" if fields[0] in "ZX" else fields[19]


class RuntimeFolder:
    """A folder of this router alone, mode 0700, removed at a clean end."""

    def __init__(self, path: Path) -> None:
        """Make the folder, under a lock that ends with this process, and sweep what an earlier user of it left.

        Raises `RuntimeFolderError`.
        """
        self.path = path
        _make_private(path)
        self._lock = os.open(path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise RuntimeFolderError(f"another gateway uses the runtime folder {path}") from None
        self.orphans = _kill_all_noted(path)
        """Process ids of orphans that were killed."""

    @property
    def fits_socket(self) -> bool:
        """Whether a socket in this folder has a path that is short enough."""
        return len(os.fsencode(self.path)) <= _SOCKET_PATH_LIMIT

    def note(self, child: Child, pid: int) -> None:
        """Note a child for the sweep of a later router. Without a note it still dies with this one."""
        text = msgspec.json.encode(ChildNote(pid, start_time(pid)))
        try:
            (self.path / _note_name(child)).write_bytes(text)
        except OSError as error:
            log.warning("cannot note %s: %s", child, error)

    def strike(self, child: Child) -> None:
        """The child has been reaped."""
        (self.path / _note_name(child)).unlink(missing_ok=True)

    def close(self) -> None:
        os.close(self._lock)
        shutil.rmtree(self.path, ignore_errors=True)


def sweep_siblings(path: Path) -> list[int]:
    """Kill the children of other routers that are gone, and remove their folders. Returns the process ids killed.

    Their folders lie beside `path` and have its name but for the process id at its end.
    """
    stem = path.name.rstrip("0123456789")
    killed: list[int] = []
    if not stem or stem == path.name or not path.parent.is_dir():
        return killed
    for folder in sorted(path.parent.glob(f"{stem}*")):
        owned = folder.name.removeprefix(stem).isdecimal() and folder != path and folder.is_dir()
        if owned and folder.stat().st_uid == os.getuid() and not _is_alive(folder):
            killed.extend(_kill_all_noted(folder))
            shutil.rmtree(folder, ignore_errors=True)
    return killed


def _is_alive(folder: Path) -> bool:
    """Whether the folder's router holds its lock."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _kill_all_noted(folder: Path) -> list[int]:
    killed = [_kill_noted(file) for file in sorted(folder.glob("*.child"))]
    for file in folder.glob("*.child"):
        file.unlink(missing_ok=True)
    return [pid for pid in killed if pid]


def _kill_noted(file: Path) -> int:
    try:
        note = msgspec.json.decode(file.read_bytes(), type=ChildNote)
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("cannot read %s: %s", file, error)
        return 0
    if not note.start_time or start_time(note.pid) != note.start_time:
        return 0
    log.warning("killing process %d, which a router that is gone has left behind", note.pid)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(note.pid, signal.SIGKILL)
    return note.pid


def _make_private(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        raise RuntimeFolderError(f"cannot make the runtime folder {path}: {error}") from error
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode):
        raise RuntimeFolderError(f"the runtime folder {path} belongs to somebody else: choose another")
    if found.st_mode & 0o077:
        path.chmod(0o700)


def _note_name(child: Child) -> str:
    return f"{child.name}-{child.epoch}.child"

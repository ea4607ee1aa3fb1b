"""Kept state on disk: one file per entry of the shelf, so that a model finds its sequences again when it is back.

A file is the magic, the length of a header, the header as MessagePack, and the state. Files are private (0600), named
by the digest of what they are for, written whole or not at all, and dropped oldest first when those of all models
together exceed the budget. Whatever cannot be read, or is of another load key or engine, is deleted and computed again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
import zlib
from array import array
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from worker.shelf import Entry, Namespace, Shelf, StateLost

logger = logging.getLogger(__name__)

SUFFIX = ".kv"
_MAGIC = b"LHKV\x01"
_LENGTH_BYTES = 4
_HEADER_LIMIT = 64 << 20


class Unreadable(StateLost):
    """A file that holds no state that can be used here."""


class _Header(Struct, frozen=True):
    """`tokens` are little-endian int32; `parent` is the digest of the tokens before `start`'s entry, empty for none."""

    fingerprint: str
    tokens: bytes
    start: int
    parent: str
    size: int
    checksum: int
    namespace: tuple[tuple[int, float], ...] = ()


def token_digest(fingerprint: str, tokens: Sequence[int], namespace: Namespace) -> str:
    """The name of a sequence's state under one load key and engine."""
    digest = hashlib.sha256(f"{fingerprint}\0{namespace!r}\0".encode())
    digest.update(array("i", tokens).tobytes())
    return digest.hexdigest()[:40]


def write_state(path: Path, fingerprint: str, entry: Entry, parent: str) -> int:
    """Write one file, whole or not at all; its size in bytes. Raises `OSError`."""
    state = entry.read()
    header = msgspec.msgpack.encode(
        _Header(
            fingerprint=fingerprint,
            tokens=array("i", entry.tokens).tobytes(),
            start=entry.start,
            parent=parent,
            size=len(state),
            checksum=zlib.crc32(state),
            namespace=entry.namespace,
        )
    )
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(_MAGIC + len(header).to_bytes(_LENGTH_BYTES, "little") + header)
            file.write(state)
        os.replace(unfinished, path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
    return path.stat().st_size


def read_header(path: Path, fingerprint: str) -> tuple[_Header, int]:
    """A file's header and where its state begins. Raises `Unreadable` or `OSError`."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise Unreadable("no state file")
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if length > _HEADER_LIMIT:
            raise Unreadable("an absurd header")
        try:
            header = msgspec.msgpack.decode(file.read(length), type=_Header)
        except msgspec.MsgspecError as error:
            raise Unreadable(f"header: {error}") from error
        at = file.tell()
    if header.fingerprint != fingerprint:
        raise Unreadable("of another model, engine or set of parameters")
    if path.stat().st_size != at + header.size:
        raise Unreadable("truncated")
    return header, at


def read_state(path: Path, fingerprint: str) -> bytes:
    """A file's state. Raises `Unreadable`."""
    try:
        header, at = read_header(path, fingerprint)
        with path.open("rb") as file:
            file.seek(at)
            state = file.read(header.size)
    except OSError as error:
        raise Unreadable(str(error)) from error
    if zlib.crc32(state) != header.checksum:
        raise Unreadable("damaged")
    return state


def header_tokens(header: _Header) -> tuple[int, ...]:
    tokens = array("i")
    tokens.frombytes(header.tokens)
    return tuple(tokens)


class KeptFiles:
    """The folder of one load key. `budget` bounds the bytes of all load keys' folders side by side."""

    def __init__(self, folder: Path, budget: int, fingerprint: str) -> None:
        self._folder = folder
        self._budget = budget
        self._fingerprint = fingerprint

    def load(self, shelf: Shelf) -> int:
        """Put every usable file's entry on the shelf, its state to be read when it is needed; their number."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        waiting: dict[str, tuple[Path, _Header]] = {}
        for path in self._folder.glob(f"*{SUFFIX}"):
            try:
                waiting[path.stem] = (path, read_header(path, self._fingerprint)[0])
            except (Unreadable, OSError) as error:
                self._discard(path, error)
        added: dict[str, Entry] = {}
        while ready := [name for name, (_, h) in waiting.items() if not h.parent or h.parent in added]:
            for name in ready:
                path, header = waiting.pop(name)
                entry = shelf.add(
                    header_tokens(header),
                    header.namespace,
                    header.start,
                    added[header.parent] if header.parent else None,
                    partial(read_state, path, self._fingerprint),
                )
                if entry is not None:
                    added[name] = entry
        for path, _ in waiting.values():
            self._discard(path, Unreadable("what it builds on is gone"))
        return len(added)

    def save(self, shelf: Shelf, seconds: float) -> None:
        """Write what is not yet on disk, the newest first, for at most so long and within the budget."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        deadline = time.monotonic() + seconds
        left = self._budget
        written: set[str] = set()
        for entry in reversed(list(shelf)):
            for link in shelf.chain(entry):
                name = self._name(link)
                if name in written:
                    continue
                if link.n_bytes > left or time.monotonic() > deadline:
                    break
                path = self._folder / f"{name}{SUFFIX}"
                try:
                    left -= self._touch(path) or write_state(path, self._fingerprint, link, self._parent(link))
                except (Unreadable, OSError) as error:
                    logger.warning("state is not kept: %s: %s", path, error)
                    break
                written.add(name)
        self.enforce_budget()

    def enforce_budget(self) -> None:
        """Delete files of any load key, oldest first, until all fit."""
        files = []
        for path in self._folder.parent.glob(f"*/*{SUFFIX}"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # another worker was quicker
            files.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in files)
        for _, size, path in sorted(files):
            if total <= self._budget:
                return
            path.unlink(missing_ok=True)
            total -= size

    def erase(self, entry: Entry) -> None:
        (self._folder / f"{self._name(entry)}{SUFFIX}").unlink(missing_ok=True)

    def _name(self, entry: Entry) -> str:
        return token_digest(self._fingerprint, entry.tokens, entry.namespace)

    def _parent(self, entry: Entry) -> str:
        return self._name(entry.parent) if entry.parent is not None else ""

    def _touch(self, path: Path) -> int:
        """The size of a file that is there already, which now counts as new; 0 if there is none."""
        try:
            os.utime(path)
            return path.stat().st_size
        except FileNotFoundError:
            return 0

    def _discard(self, path: Path, reason: Exception) -> None:
        logger.info("kept state dropped: %s: %s", path.name, reason)
        path.unlink(missing_ok=True)

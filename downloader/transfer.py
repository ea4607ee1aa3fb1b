"""Brings the files of one plan into the cache: resume by range, verify, publish. Runs in a job process."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from downloader.digest import ContentHash, pieces
from downloader.faults import DownloadFault, transient
from downloader.hub import Body, Remote
from downloader.jobwire import Phase
from downloader.locks import blob_lock
from downloader.rate import Pacer
from downloader.store import Note, Store
from protocol.download import Plan, PlanFile
from protocol.errors import ErrorKind

WINDOW = 8 << 30
"""Bytes asked for at once: far below the longest answer that a CDN gives (50 GB)."""

_VERIFY_ROUNDS = 2


class Source(Protocol):
    """The part of `Hub` that a transfer needs."""

    def locate(self, repo: str, commit: str, path: str) -> Remote: ...

    def read(self, remote: Remote, start: int, end: int, if_range: str) -> AbstractContextManager[Body]: ...


class Transfer:
    """Fetches a plan. `report(index, phase)` is told what each file waits for; `wait(seconds)` blocks."""

    def __init__(
        self,
        store: Store,
        hub: Source,
        plan: Plan,
        pacer: Pacer,
        report: Callable[[int, Phase], object],
        wait: Callable[[float], object],
        rest: Callable[[], object],
        window: int = WINDOW,
    ) -> None:
        """`rest` is called between small pieces of work."""
        self._store = store
        self._hub = hub
        self._plan = plan
        self._repo = plan.repo
        self._pacer = pacer
        self._report = report
        self._wait = wait
        self._window = window
        self._rest = rest

    def run(self) -> Path:
        """Fetch, verify and publish everything; return the first file's path. Raises `DownloadFault`."""
        with _disk_faults(self._store.root):
            self._store.prepare(self._repo)
            for index, file in enumerate(self._plan.files):
                self._fetch(index, file)
                self._report(index, Phase.DONE)
            return self._store.publish(self._plan)

    def _fetch(self, index: int, file: PlanFile) -> None:
        if self._store.has_blob(self._repo, file):
            return
        self._report(index, Phase.LOCKED)
        with blob_lock(self._store.lock(self._repo, file.blob), self._wait):
            for _ in range(_VERIFY_ROUNDS):
                if self._store.has_blob(self._repo, file):  # by another job or tool, while this one waited
                    return
                content = self._complete(index, file)
                self._report(index, Phase.VERIFYING)
                if content.name == file.blob:
                    self._store.adopt(self._repo, file.blob)
                    return
                self._store.drop_partial(self._repo, file.blob)
        raise DownloadFault(
            ErrorKind.UNAVAILABLE,
            f"what the hub sends for '{file.path}' does not match its checksum; tried {_VERIFY_ROUNDS} times",
        )

    def _complete(self, index: int, file: PlanFile) -> ContentHash:
        """Fetch what is missing of a file; the hash of all that is there then."""
        path = self._store.partial(self._repo, file.blob)
        content = self._begun(index, file, path)
        self._report(index, Phase.ASKING)
        remote = self._hub.locate(self._repo, self._plan.commit, file.path)
        if remote.etag != file.blob or remote.size != file.size:
            self._store.drop_partial(self._repo, file.blob)
            raise DownloadFault(
                ErrorKind.UNAVAILABLE, f"'{file.path}' has changed on the hub", retryable=True, changed=True
            )
        note = self._store.read_note(self._repo, file.blob) or Note(file.path, file.size)
        self._report(index, Phase.FETCHING)
        with path.open("ab", buffering=0) as target:
            while (have := content.length) < file.size:
                end = min(have + self._window, file.size)
                with self._hub.read(remote, have, end, note.transport_etag) as body:
                    if body.start != have:
                        target.truncate(body.start)
                        content = self._hash_of(path, file, body.start)
                    if body.etag != note.transport_etag or have == 0:
                        note = Note(file.path, file.size, body.etag)
                        self._store.write_note(self._repo, file.blob, note)
                    for chunk in body.chunks:
                        _write(target.fileno(), chunk)
                        content.update(chunk)
                        self._pacer.spend(len(chunk))
                        self._rest()
                if content.length <= have and body.start == have:
                    raise transient(f"the hub sent nothing of '{file.path}'")
                if content.length > file.size:
                    self._store.drop_partial(self._repo, file.blob)
                    raise transient(f"the hub sent more than {file.size} bytes of '{file.path}'")
        return content

    def _begun(self, index: int, file: PlanFile, path: Path) -> ContentHash:
        """The hash of what an earlier attempt has left."""
        try:
            length = path.stat().st_size
        except FileNotFoundError:
            length = 0
        if length:
            self._report(index, Phase.VERIFYING)
        return self._hash_of(path, file, length)

    def _hash_of(self, path: Path, file: PlanFile, length: int) -> ContentHash:
        """The hash of the first bytes of a file that is to become `file`."""
        content = ContentHash(file.blob, file.size)
        if length:
            for piece in pieces(path, length):
                content.update(piece)
                self._rest()
        return content


def _write(descriptor: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(descriptor, view) :]


@contextlib.contextmanager
def _disk_faults(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DownloadFault(ErrorKind.NO_SPACE, f"the disk of {root} is full", retryable=True) from error
        raise DownloadFault(ErrorKind.INTERNAL, f"the cache cannot be written: {error}", retryable=True) from error

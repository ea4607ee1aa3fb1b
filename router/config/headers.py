"""Facts of files that were read once, so that a reload reads only what is new."""

from __future__ import annotations

import threading

from msgspec import Struct

from router.config.errors import BadHeader
from router.config.facts import Identity, ModelFacts, identify, read_facts


class Unreadable(Struct, frozen=True):
    """Why a file's header could not be read."""

    reason: str


class HeaderCache:
    """Facts by path and identity. May be used from several threads; two may read the same file at once, harmlessly."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._read: dict[str, tuple[Identity, ModelFacts | Unreadable]] = {}

    def get(self, path: str) -> ModelFacts | Unreadable:
        """The facts of a file, read now if they are not known or the file has changed."""
        known = self.known(path)
        if known is not None:
            return known
        try:
            identity = identify(path)
            found: ModelFacts | Unreadable
            try:
                found = read_facts(path)
            except BadHeader as error:
                found = Unreadable(str(error))
        except OSError as error:
            return Unreadable(f"{error.strerror}: {path}")
        with self._lock:
            self._read[path] = (identity, found)
        return found

    def known(self, path: str) -> ModelFacts | Unreadable | None:
        """What an earlier read found, None if there was none or the file has changed since."""
        with self._lock:
            entry = self._read.get(path)
        if entry is None:
            return None
        try:
            return entry[1] if identify(path) == entry[0] else None
        except OSError:
            return None

"""What llama-server's slot actions do here: save, restore and erase the sequence that a slot ran last."""

from __future__ import annotations

import time
from pathlib import Path

from protocol.errors import ErrorKind, WireError
from protocol.slots import SlotAction, SlotActionDone
from worker.kept_files import KeptFiles, Unreadable, header_tokens, read_header, read_state, write_state
from worker.kv_cache import KvCache
from worker.shelf import Entry, Namespace


class SlotActionError(Exception):
    """An action that cannot be done; `error` says why."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        super().__init__(message)
        self.error = WireError(kind, message)


class SlotFiles:
    """`last` are the tokens and namespace that each slot ran last; the loop keeps it."""

    def __init__(self, folder: str, fingerprint: str, cache: KvCache, kept: KeptFiles | None) -> None:
        self._kept = kept
        self._folder = folder
        self._fingerprint = fingerprint
        self._cache = cache
        self.last: dict[int, tuple[tuple[int, ...], Namespace]] = {}

    def run(self, action: SlotAction) -> SlotActionDone:
        """Raises `SlotActionError`."""
        began = time.perf_counter()
        if action.action == "erase":
            n_tokens, n_bytes = self._erase(action.slot), 0
        elif action.action == "save":
            n_tokens, n_bytes = self._save(action.slot, self._path(action.filename))
        elif action.action == "restore":
            n_tokens, n_bytes = self._restore(action.slot, self._path(action.filename))
        else:
            raise SlotActionError(ErrorKind.INVALID_REQUEST, f"there is no slot action {action.action!r}")
        return SlotActionDone(action.request, n_tokens, n_bytes, 1000 * (time.perf_counter() - began))

    def _path(self, filename: str) -> Path:
        if not self._folder:
            raise SlotActionError(ErrorKind.NOT_SUPPORTED, "slots are saved and restored only with --slot-save-path")
        if not filename or filename != Path(filename).name or filename.startswith("."):
            raise SlotActionError(ErrorKind.INVALID_REQUEST, "filename must be a bare file name")
        return Path(self._folder) / filename

    def _erase(self, slot: int) -> int:
        """Forget what a slot ran last; with the last of the slots also what they ran before."""
        tokens, namespace = self.last.pop(slot, ((), ()))
        erased = self._cache.erase(tokens, namespace)
        if not self.last:
            erased += self._cache.shelf
            self._cache.clear()
        for entry in erased:
            if self._kept is not None:
                self._kept.erase(entry)
        return len(tokens)

    def _save(self, slot: int, path: Path) -> tuple[int, int]:
        tokens, namespace = self.last.get(slot, ((), ()))
        if not tokens:
            raise SlotActionError(ErrorKind.INVALID_REQUEST, f"slot {slot} has run nothing yet")
        length, state = self._cache.export(tokens, namespace)
        if not length:
            raise SlotActionError(ErrorKind.CONFLICT, f"the state of slot {slot} has been dropped from the cache")
        entry = Entry(0, tokens[:length], namespace, 0, None, state)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return length, write_state(path, self._fingerprint, entry, "")
        except OSError as error:
            raise SlotActionError(ErrorKind.NO_SPACE, f"{path.name}: {error.strerror}") from error

    def _restore(self, slot: int, path: Path) -> tuple[int, int]:
        try:
            header, _ = read_header(path, self._fingerprint)
            state = read_state(path, self._fingerprint)
        except FileNotFoundError as error:
            raise SlotActionError(ErrorKind.NOT_FOUND, f"{path.name}: no such file") from error
        except (Unreadable, OSError) as error:
            raise SlotActionError(ErrorKind.INVALID_REQUEST, f"{path.name}: {error}") from error
        tokens = header_tokens(header)
        if not self._cache.import_state(tokens, header.namespace, state):
            raise SlotActionError(ErrorKind.CONFLICT, f"{path.name}: no room for {len(tokens)} tokens")
        self.last[slot] = (tokens, header.namespace)
        return len(tokens), path.stat().st_size

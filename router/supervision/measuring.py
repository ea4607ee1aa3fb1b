"""Keeps what models were seen to occupy: tells the scheduler, and the scheduler of the next router."""

from __future__ import annotations

import msgspec

from protocol.status import UpdateStatus, WorkerState
from router.scheduling.events import MemoryMeasured
from router.scheduling.model import ModelEntry
from router.supervision.memory import measure
from router.supervision.state import StateFolder


class Measurements:
    """Entries of all models, with measured needs where there are any. `state` None keeps nothing."""

    def __init__(self, state: StateFolder | None) -> None:
        self._state = state
        self._entries: dict[str, ModelEntry] = {}

    def configure(self, entries: tuple[ModelEntry, ...]) -> tuple[ModelEntry, ...]:
        """Take a new configuration; the same with what is known about its models."""
        merged = tuple(self._with_known(entry) for entry in entries)
        self._entries = {entry.key: entry for entry in merged}
        return merged

    def take(self, key: str, status: UpdateStatus) -> MemoryMeasured | None:
        """Look at the status of a model's worker; what the scheduler should hear of it, if anything."""
        entry = self._entries.get(key)
        if entry is None or status.state is not WorkerState.READY:
            return None
        measured = measure(entry, status.memory)
        if measured is None:
            return None
        self._entries[key] = measured
        if self._state is not None:
            self._state.save_measured(key, measured.needs)
        return MemoryMeasured(key, measured)

    def _with_known(self, entry: ModelEntry) -> ModelEntry:
        before = self._entries.get(entry.key)
        known = before.needs if before is not None else ()
        if self._state is not None and not any(need.measured for need in known):
            known = self._state.measured(entry.key)
        if not any(need.measured for need in known):
            return entry
        return msgspec.structs.replace(entry, needs=known)

"""What workers last said of themselves: all monitoring is answered from here, none of it reaches a worker."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from protocol.load import Loaded, ModelInfo
from protocol.status import UpdateStatus, WorkerState
from router.scheduling.events import Child


@dataclass(slots=True, eq=False)
class WorkerRecord:
    """One worker process. `model` is the key of what it was told to load, None for a spare."""

    child: Child
    pid: int = 0
    model: str | None = None
    status: UpdateStatus | None = None
    connected: bool = False

    @property
    def preparing(self) -> bool:
        """Whether it starts, loads or wakes: times in which only the process itself shows that it works."""
        if self.model is None:
            return not self.connected
        return self.status is None or self.status.state in (
            WorkerState.EMPTY,
            WorkerState.LOADING,
            WorkerState.WAKING,
        )


class WorkerTable:
    """The newest status per worker, and the facts of each model that has been loaded."""

    def __init__(self) -> None:
        self._records: dict[Child, WorkerRecord] = {}
        self._info: dict[str, ModelInfo] = {}

    def add(self, record: WorkerRecord) -> None:
        self._records[record.child] = record

    def get(self, child: Child) -> WorkerRecord | None:
        return self._records.get(child)

    def remove(self, child: Child) -> None:
        self._records.pop(child, None)

    def records(self) -> tuple[WorkerRecord, ...]:
        return tuple(self._records.values())

    def info(self, model: str) -> ModelInfo | None:
        """Facts of a model as its worker reported them at the last load."""
        return self._info.get(model)

    def loaded(self, child: Child, message: Loaded) -> None:
        record = self._records.get(child)
        if record is not None and record.model is not None:
            self._info[record.model] = message.info

    def forget_models(self, keep: set[str]) -> None:
        """Drop the facts of models that are not configured any more."""
        self._info = {key: info for key, info in self._info.items() if key in keep}

    def take(self, child: Child, status: UpdateStatus) -> UpdateStatus | None:
        """Keep a status if it is newer than what is known. Returns what the scheduler should hear, if anything.

        An answer to a ping is always heard: if something newer has overtaken it, the newer status answers.
        """
        record = self._records.get(child)
        if record is None:
            return None
        known = record.status
        if known is None or status.revision > known.revision:
            record.status = status
            return status
        return msgspec.structs.replace(known, answers=status.answers) if status.answers else None

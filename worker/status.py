"""The worker's status as a level: what is reported, and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from protocol.status import Counters, DeviceMemory, MemoryUse, SlotStatus, UpdateStatus, WorkerState

NUMBERS_INTERVAL = 0.25
"""Seconds between two reports when nothing but numbers has changed."""
_MEMORY_INTERVAL = 1.0


class StatusBoard:
    """Holds the present state and makes complete snapshots of it, on any thread.

    The other threads write the public attributes; the counters are read as they stand. `held()` lists every request
    that the worker knows.
    """

    def __init__(self, held: Callable[[], tuple[int, ...]]) -> None:
        self.step = 0
        self.preparation = 0
        self.media: Callable[[], int] = lambda: 0
        self.threads = 0
        self.kv_used: Callable[[], int] = lambda: 0
        self.kv_total = 0
        self.slots: Callable[[], tuple[SlotStatus, ...]] = tuple
        self.counters: Callable[[], Counters] = Counters
        self.devices: tuple[DeviceMemory, ...] = ()
        self._held = held
        self._lock = threading.Lock()
        self._revision = 0
        self._state = WorkerState.EMPTY
        self._reason = ""
        self._stage = ""
        self._progress = 0.0
        self._resident = self._anonymous = 0
        self._memory_read = -_MEMORY_INTERVAL

    @property
    def state(self) -> WorkerState:
        return self._state

    def set_state(self, state: WorkerState, reason: str = "") -> None:
        with self._lock:
            self._state, self._reason = state, reason
            self._stage, self._progress = "", 0.0

    def set_progress(self, stage: str, progress: float) -> None:
        with self._lock:
            self._stage, self._progress = stage, progress

    def snapshot(self, answers: int = 0) -> UpdateStatus:
        with self._lock:
            self._revision += 1
            return UpdateStatus(
                revision=self._revision,
                state=self._state,
                answers=answers,
                progress=self._progress,
                stage=self._stage,
                step=self.step,
                preparation=self.preparation + self.media(),
                slots=self.slots(),
                held=self._held(),
                kv_used=self.kv_used(),
                kv_total=self.kv_total,
                threads=self.threads,
                memory=self._memory_use(),
                counters=self.counters(),
                reason=self._reason,
            )

    def _memory_use(self) -> MemoryUse:
        now = time.monotonic()
        if now - self._memory_read >= _MEMORY_INTERVAL:
            self._memory_read = now
            self._resident, self._anonymous = _process_memory()
        return MemoryUse(self._resident, self._anonymous, self.devices)


class StatusReporter:
    """Sends snapshots: at once where somebody waits for the change, the numbers at most four times a second."""

    def __init__(self, board: StatusBoard, send: Callable[[UpdateStatus], None]) -> None:
        self._board = board
        self._send = send
        self._sent = 0.0

    def report(self) -> None:
        """Send now."""
        self._sent = time.monotonic()
        self._send(self._board.snapshot())

    def tick(self) -> bool:
        """Send if the last report is old enough; says whether it was."""
        if time.monotonic() - self._sent < NUMBERS_INTERVAL:
            return False
        self.report()
        return True

    def change(self, state: WorkerState, reason: str = "") -> None:
        self._board.set_state(state, reason)
        self.report()


def _process_memory() -> tuple[int, int]:
    """Resident and anonymous bytes of this process."""
    values = {"VmRSS": 0, "RssAnon": 0}
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in values:
            values[name] = int(rest.split()[0]) * 1024
    return values["VmRSS"], values["RssAnon"]

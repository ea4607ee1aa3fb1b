"""Readings of memory: what is free on the machine, and what one worker occupies."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from protocol.status import MemoryUse
from router.config.machine import usable_memory
from router.scheduling.events import MemoryRead
from router.scheduling.model import ModelEntry, Need

HOST = "host"
SETTLED_WITHIN = 64 << 20
"""Bytes by which two readings may differ and still agree."""
APART = 0.2
"""Seconds between two readings: the kernel frees the memory of a dead process bit by bit."""
RECENT = 3.0
"""Seconds after which an earlier reading says nothing any more."""
WORTH_TELLING = 0.05
"""Part by which a measurement must differ from what is known to be told again."""


class MemoryReader:
    """Reads free memory; says whether the last two readings agree. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._at = -math.inf

    def pause(self, now: float) -> float:
        """Seconds until a reading says more than the last one."""
        return max(0.0, self._at + APART - now)

    def read(self, now: float) -> MemoryRead:
        """Free bytes of main memory, within the limits of our control groups. Nothing where it cannot be read."""
        free = usable_memory()
        recent = now - self._at <= RECENT
        settled = free is None or (recent and self._last is not None and abs(free - self._last) <= SETTLED_WITHIN)
        self._last, self._at = free, now
        return MemoryRead(((HOST, free),) if free is not None else (), settled)


def measure(entry: ModelEntry, use: MemoryUse) -> ModelEntry | None:
    """What a loaded worker occupies, as the entry of its model; None if that is known already.

    Mapped weights stay charged by file, as predicted. Everything anonymous and everything on a device is private, and
    never less than what the engine has allocated: a cache that is empty still has few pages in memory.
    """
    if not use.anonymous:
        return None
    shared = {need.device: need.shared for need in entry.needs}
    private = {HOST: use.anonymous}
    for device in use.devices:
        mapped = sum(size for _, size in shared.get(device.device, ()))
        allocated = max(0, device.weights - mapped) + device.context + device.compute
        private[device.device] = max(private.get(device.device, 0), allocated)
    needs = tuple(Need(device, size, shared.get(device, ()), measured=True) for device, size in private.items())
    if not _differs(entry.needs, needs):
        return None
    return msgspec.structs.replace(entry, needs=needs)


def _differs(known: Iterable[Need], measured: Iterable[Need]) -> bool:
    before = {need.device: need for need in known}
    for need in measured:
        other = before.pop(need.device, None)
        if other is None or not other.measured:
            return True
        # A worker grows into its memory and frees some of it now and then: only growth is news.
        if need.private > other.private * (1 + WORTH_TELLING):
            return True
    return bool(before)

"""What one scrape shows, as plain values: taken from the tables in one go, turned into metrics elsewhere."""

from __future__ import annotations

from msgspec import Struct

from protocol.status import Counters, MemoryUse


class ModelSample(Struct, frozen=True, omit_defaults=True):
    """One load key, under the name of its first model. Times are seconds, `memory` is its worker's in bytes.

    `counters` are totals over all workers that the model has had since the gateway started. `prompt_rate` and
    `predicted_rate` are tokens per second of computing, over the last minute with work.
    """

    model: str
    state: str
    has_worker: bool = False
    slots: int = 0
    slots_busy: int = 0
    running: int = 0
    waiting: int = 0
    oldest_wait: float = 0.0
    load_progress: float = 0.0
    kv_used: int = 0
    kv_total: int = 0
    threads: int = 0
    pinned: bool = False
    memory: MemoryUse = MemoryUse()
    counters: Counters = Counters()
    prompt_rate: float = 0.0
    predicted_rate: float = 0.0


class DeviceSample(Struct, frozen=True):
    """Bytes of one device (`host` is main memory): what the gateway may use, and what it has reserved."""

    device: str
    budget: int
    reserved: int


class DownloadSample(Struct, frozen=True):
    """One running or waiting download; bytes."""

    reference: str
    done: int
    total: int


class Snapshot(Struct, frozen=True, omit_defaults=True):
    version: str
    models: tuple[ModelSample, ...] = ()
    devices: tuple[DeviceSample, ...] = ()
    downloads: tuple[DownloadSample, ...] = ()
    spare_workers: int = 0
    streams: int = 0
    """Answers that are kept for readers, detached ones too."""

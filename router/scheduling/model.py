"""What the scheduler knows of a model, as plain values. One entry per load key."""

from __future__ import annotations

from msgspec import Struct


class Need(Struct, frozen=True, omit_defaults=True):
    """Memory in bytes that a model occupies on one device (`host` is main memory).

    `shared` are tensor bytes of mapped files by (dev, inode) text, charged once for all models that map them;
    `private` is everything else. `measured` says whether it was observed or predicted from the file's header.
    """

    device: str
    private: int
    shared: tuple[tuple[str, int], ...] = ()
    measured: bool = False


Needs = tuple[Need, ...]


class ModelEntry(Struct, frozen=True, omit_defaults=True):
    """One load key. Times are seconds, 0 = never or none. `names` are the ids that clients may send."""

    key: str
    names: tuple[str, ...]
    needs: tuple[Need, ...] = ()
    slots: int = 4
    pin: bool = False
    priority: int = 0
    home: bool = False
    default_environment: bool = True
    """Whether a warm spare may become this model's worker."""
    on_gpu: bool = False
    reserved_threads: int = 0
    sleep_idle: float = 0.0
    unload_idle: float = 0.0
    recycle_after: int = 0
    """Replace the worker after this many requests; 0 = never."""
    max_memory: int = 0
    stop_timeout: float = 10.0
    queue_limit: int = 0
    wait_limit: float = 0.0
    load_on_startup: bool = False


class Policy(Struct, frozen=True, omit_defaults=True):
    """Settings of the scheduler. Times are seconds; None where the design says "auto"."""

    models_max: int = 0
    """Resident models at most; 0 = memory decides."""
    budget: tuple[tuple[str, int], ...] = ()
    """Bytes usable per device; a device that is absent is not limited."""
    autoload: bool = True
    spare_workers: int = 1
    max_swap_wait: float | None = None
    drain_timeout: float = 30.0
    min_residency: float = 0.0
    queue_limit: int = 512
    wait_limit: float = 0.0
    threads: int = 1
    """Cores that the governor shares out among busy workers."""
    wedge_after: float = 60.0
    query_interval: float = 5.0
    backoff_first: float = 1.0
    backoff_max: float = 60.0
    stable_after: float = 30.0
    cooldown_failures: int = 5
    cooldown: float = 300.0
    in_flight_factor: int = 2

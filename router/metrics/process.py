"""The router's own process, under the names that every client library of Prometheus gives."""

from __future__ import annotations

import resource
import time

import psutil
from msgspec import Struct


class ProcessSample(Struct, frozen=True):
    """Processor time in seconds, memory in bytes, and when it started as a Unix time."""

    cpu_seconds: float
    resident: int
    virtual: int
    open_files: int
    most_files: int
    started: float


class ProcessReader:
    """Reads two small files of the system at a time; the client library's collector reads and renders for longer than
    all else in a scrape takes."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._started = self._process.create_time()

    def __call__(self) -> ProcessSample:
        memory = self._process.memory_info()
        return ProcessSample(
            cpu_seconds=time.process_time(),
            resident=memory.rss,
            virtual=memory.vms,
            open_files=self._process.num_fds(),
            most_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            started=self._started,
        )

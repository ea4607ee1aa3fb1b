"""Workers with tiny models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from protocol.load import LoadParameters, WorkerSettings
from tests.worker.local_wire import LocalWorker

Load = Callable[..., LocalWorker]


@pytest.fixture
def load() -> Iterator[Load]:
    """`load(path, settings=…, **parameters)` starts a worker in this process; it is stopped at the end."""
    workers: list[LocalWorker] = []

    def start(path: Path, settings: WorkerSettings | None = None, **parameters: object) -> LocalWorker:
        worker = LocalWorker()
        workers.append(worker)
        parameters.setdefault("ctx_size", 512)
        worker.load(
            LoadParameters(model_path=str(path), **parameters),  # type: ignore[arg-type]
            settings or WorkerSettings(threads=1),
        )
        return worker

    yield start
    for worker in workers:
        if worker.exit_code is None:
            worker.stop()

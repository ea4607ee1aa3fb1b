"""`Downloads` with a nursery, a journal and a record of what was announced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from protocol.download import ConfigureDownloads, DownloadChoice
from router.downloads.job import Job
from router.downloads.journal import Journal
from router.downloads.service import Downloads
from router.supervision.nursery import Nursery
from router.supervision.runtime import RuntimeFolder
from tests.eventually import eventually_async


class Office:
    """One gateway's worth of downloads; `open` again after `close` is the next gateway over the same folders."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        self.cache = folder / "home" / "hub"
        self.journal = folder / "state" / "downloads.json"
        self.told: list[tuple[str, str, Any]] = []
        self.changes = 0
        self._runtime_path = runtime
        self.settings = ConfigureDownloads(
            cache_dir=str(self.cache),
            stall_timeout=8.0,
            attempts=4,
            space_margin=0,
            backoff_first=0.05,
            backoff_max=0.2,
        )

    async def open(self) -> None:
        self._runtime = RuntimeFolder(self._runtime_path / "run")
        self.nursery = Nursery(self._runtime)
        self.nursery.open()
        self.downloads = Downloads(self.nursery, self.settings, Journal(self.journal), publish=self._publish)
        self.downloads.changed = self._changed
        self.downloads.open()

    async def close(self) -> None:
        await self.downloads.close()
        await self.nursery.close(2.0)
        self._runtime.close()

    def _publish(self, model: str, event: str, data: bytes) -> None:
        self.told.append((model, event, msgspec.json.decode(data) if data else None))

    async def _changed(self) -> None:
        self.changes += 1

    async def pull(self, reference: str, **choice: str) -> Job:
        return await self.downloads.pull(DownloadChoice(reference, **choice))

    async def done(self, job: Job, timeout: float = 20.0) -> None:
        await eventually_async(lambda: job.over, timeout, f"job {job.number} ends; it is {job.state}")

    async def shows(self, job: Job, size: int) -> None:
        """Wait until a job shows at least `size` bytes."""
        await eventually_async(
            lambda: job.progress is not None and job.progress.done >= size, 20.0, f"job {job.number} has {size} bytes"
        )

    def events(self, *names: str) -> list[str]:
        return [event for _, event, _ in self.told if event in names]

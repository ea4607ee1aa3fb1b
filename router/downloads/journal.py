"""The job table on disk: what was queued goes on after a restart of the gateway."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import msgspec
from msgspec import Struct

from router.downloads.job import JobRecord

log = logging.getLogger("llamaherd.downloads")


class Page(Struct, frozen=True):
    """The file's content. `next` is the first job number that was never used."""

    next: int
    jobs: tuple[JobRecord, ...]


_decoder = msgspec.json.Decoder(Page)


class Journal:
    """Keeps the newest page in a file; the writing is done beside the event loop, one page at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: Page | None = None
        self._writing: asyncio.Task[None] | None = None

    def read(self) -> Page:
        """The page that was written last. One that cannot be read is put aside: it must not keep the gateway down."""
        try:
            return _decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            pass
        except (msgspec.MsgspecError, OSError) as error:
            log.error("the download queue cannot be read and is begun anew: %s", error)
            os.replace(self._path, self._path.with_suffix(".unreadable"))
        return Page(1, ())

    def keep(self, page: Page) -> None:
        """Write a page soon; of several only the newest."""
        self._pending = page
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write_pending())

    async def close(self) -> None:
        """Wait until the newest page is on disk."""
        if self._writing is not None:
            await self._writing

    async def _write_pending(self) -> None:
        while (page := self._pending) is not None:
            self._pending = None
            try:
                await asyncio.to_thread(self._write, page)
            except OSError as error:
                log.error("the download queue cannot be saved: %s", error)

    def _write(self, page: Page) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        aside = self._path.with_suffix(".tmp")
        with aside.open("wb") as file:
            file.write(msgspec.json.encode(page))
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, self._path)

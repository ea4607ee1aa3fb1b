"""Whether a plan fits on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from downloader.faults import DownloadFault
from downloader.store import Store
from protocol.download import Plan, Space
from protocol.errors import ErrorKind


def free_bytes(folder: Path) -> int:
    """Bytes that an ordinary user may still write to the file system of a folder, which need not exist yet."""
    while not folder.exists():
        folder = folder.parent
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def space_for(plan: Plan, claims: Iterable[Plan], store: Store, margin: int) -> Space:
    """What a plan needs beside those of other jobs; content that it shares with them is not reserved twice."""
    mine = {(plan.repo, file.blob) for file in plan.files}
    reserved: dict[tuple[str, str], int] = {}
    for other in claims:
        for file in other.files:
            if (other.repo, file.blob) not in mine:
                reserved[other.repo, file.blob] = file.size - store.bytes_of(other.repo, file)
    return Space(
        missing=store.missing(plan), free=free_bytes(store.root), reserved=sum(reserved.values()), margin=margin
    )


def no_space(space: Space, folder: Path) -> DownloadFault:
    """The refusal, with its numbers."""
    reserved = f" and {size_text(space.reserved)} for the downloads before it" if space.reserved else ""
    return DownloadFault(
        ErrorKind.NO_SPACE,
        f"not enough space in {folder}: {size_text(space.missing)} needed{reserved}, {size_text(space.free)} free, "
        f"{size_text(space.margin)} of them to be left free",
        retryable=True,
    )


def size_text(size: int) -> str:
    """Bytes for people: `734 B`, `4.1 GB` (powers of ten, as hubs count)."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"

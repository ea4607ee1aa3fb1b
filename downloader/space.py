"""Whether a plan fits on the disk."""

from __future__ import annotations

import os
from pathlib import Path

from downloader.faults import DownloadFault
from protocol.download import Space
from protocol.errors import ErrorKind


def free_bytes(folder: Path) -> int:
    """Bytes that an ordinary user may still write to the file system of a folder, which need not exist yet."""
    while not folder.exists():
        folder = folder.parent
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


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

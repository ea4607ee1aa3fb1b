"""Download jobs: plan, start, progress, end."""

from __future__ import annotations

from msgspec import Struct

from protocol.errors import WireError


class PlanDownload(Struct, frozen=True, tag="plan_download", omit_defaults=True):
    """Resolve a reference (`user/repo[:QUANT]`, `user/repo@revision`, `user/repo/file.gguf`) into files."""

    job: int
    reference: str


class DownloadFailed(Struct, frozen=True, tag="download_failed", omit_defaults=True):
    job: int
    error: WireError
    retryable: bool = False


ToDownloader = PlanDownload
FromDownloader = DownloadFailed

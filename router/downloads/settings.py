"""The downloader's settings, taken from the gateway's."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.download import ConfigureDownloads
from router.config.hub_cache import cache_folder
from router.config.settings import Settings


def download_settings(settings: Settings, environ: Mapping[str, str]) -> ConfigureDownloads:
    """What the downloader is told. Both processes use the same cache folder, whatever their environments say."""
    return ConfigureDownloads(
        cache_dir=str(cache_folder(environ)),
        parallel=settings.downloads_parallel,
        rate_limit=settings.download_rate,
        offline=settings.offline,
    )

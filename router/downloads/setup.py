"""Puts the downloads of a gateway together from its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from protocol.download import ConfigureDownloads
from router.config.hub_cache import cache_folder
from router.config.settings import Settings, state_folder
from router.downloads.job import Job
from router.downloads.journal import Journal
from router.downloads.service import Downloads
from router.downloads.table import Publish
from router.supervision.nursery import Nursery

DEFAULT_HUB = "https://huggingface.co"
TOKEN = "HF_TOKEN"


def download_settings(settings: Settings, environ: Mapping[str, str]) -> ConfigureDownloads:
    """What the downloader is told. Both processes use the same cache folder, whatever their environments say."""
    return ConfigureDownloads(
        cache_dir=str(cache_folder(environ)),
        parallel=settings.downloads_parallel,
        rate_limit=settings.download_rate,
        stall_timeout=settings.download_stall_timeout,
        space_margin=settings.download_space_margin,
        offline=settings.offline,
    )


def build_downloads(
    settings: Settings,
    environ: Mapping[str, str],
    nursery: Nursery,
    publish: Publish,
    ended: Callable[[Job], None],
) -> Downloads:
    """Downloads that are not open yet. `publish` tells the event stream, `ended` is called with each that ended."""
    return Downloads(
        nursery,
        download_settings(settings, environ),
        Journal(state_folder(settings) / "downloads.json"),
        token=settings.hf_token or environ.get(TOKEN, ""),
        hub=environ.get("HF_ENDPOINT") or DEFAULT_HUB,
        publish=publish,
        ended=ended,
    )

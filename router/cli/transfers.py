"""Downloads as the gateway lists them."""

from __future__ import annotations

from typing import Any

from router.cli.client import Client

ACTIVE = ("queued", "planning", "downloading", "verifying")


def downloads(client: Client) -> list[dict[str, Any]]:
    """All known downloads, the newest last. Raises `ClientError`."""
    found: list[dict[str, Any]] = client.get("/downloads")["data"]
    return found


def is_active(download: dict[str, Any]) -> bool:
    return str(download.get("state")) in ACTIVE


def find(found: list[dict[str, Any]], reference: str) -> dict[str, Any] | None:
    """The newest download of a reference, by its id or by what was asked for."""
    for download in found[::-1]:
        if reference in (str(download.get("id")), download.get("reference"), download.get("model")):
            return download
    return None


def error_text(download: dict[str, Any]) -> str:
    error = download.get("error")
    if isinstance(error, dict):
        return str(error.get("message", ""))
    return str(error or "")

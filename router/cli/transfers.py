"""Downloads as the gateway lists them."""

from __future__ import annotations

from typing import Any

from router.cli.client import Client

ENDED = ("done", "cancelled", "failed")


def downloads(client: Client) -> list[dict[str, Any]]:
    """All known downloads, the newest last. Raises `ClientError`."""
    found: list[dict[str, Any]] = client.get("/downloads")["data"]
    return found


def download(client: Client, id: object) -> dict[str, Any]:
    """One download with its plan. Raises `ClientError`."""
    found: dict[str, Any] = client.get(f"/downloads/{id}")
    return found


def is_active(item: dict[str, Any]) -> bool:
    """Whether it will go on by itself."""
    return item.get("state") not in (*ENDED, "paused")


def find(found: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The newest download with this id, reference or model."""
    for item in found[::-1]:
        if name in (str(item.get("id")), item.get("reference"), item.get("model")):
            return item
    return None


def error_text(item: dict[str, Any]) -> str:
    """Why it failed, or why it does not go on."""
    error = item.get("error")
    if isinstance(error, dict):
        return str(error.get("message", ""))
    return str(item.get("reason") or "")

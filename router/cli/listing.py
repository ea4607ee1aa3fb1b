"""Models as the gateway lists them, made into rows."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from router.cli import display
from router.cli.client import Client

RUNNING = ("loaded", "loading", "sleeping")


def entries(client: Client, *, reload: bool = False) -> list[dict[str, Any]]:
    """All listed models. Raises `ClientError`."""
    answer = client.get("/models", reload=True) if reload else client.get("/models")
    found: list[dict[str, Any]] = answer["data"]
    return found


def entry_of(client: Client, name: str) -> dict[str, Any]:
    """One model by id or alias. Raises `ClientError`."""
    found: dict[str, Any] = client.get(f"/v1/models/{name}")
    return found


def state_word(entry: dict[str, Any]) -> str:
    status = entry["status"]
    return "failed" if status.get("failed") else str(status["value"])


def state_text(entry: dict[str, Any]) -> Text:
    """The state, with the progress of a load."""
    word = state_word(entry)
    progress = entry["status"].get("progress")
    made = display.state(word)
    if word == "loading" and isinstance(progress, int | float):
        made.append(f" {progress:.0%}")
    return made


def reason(entry: dict[str, Any]) -> str:
    return str(entry["status"].get("reason") or entry.get("blocked") or "")


def memory(entry: dict[str, Any]) -> str:
    """Measured memory, or the predicted one with a tilde."""
    found = entry.get("memory", {})
    if found.get("resident") and entry["status"]["value"] in RUNNING:
        return display.size(found["resident"])
    predicted = found.get("predicted")
    return f"~{display.size(predicted)}" if predicted else "-"


def slots(entry: dict[str, Any]) -> str:
    found = entry.get("slots")
    return f"{found['busy']}/{found['total']}" if found else "-"


def requests(entry: dict[str, Any]) -> str:
    found = entry.get("requests", {})
    return f"{found.get('running', 0)}+{found.get('waiting', 0)}"


def speed(entry: dict[str, Any]) -> str:
    found = entry.get("tokens_per_second")
    return f"{found:.1f}" if isinstance(found, int | float) else "-"

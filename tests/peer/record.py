"""Asks llama-server everything and keeps its answers: `LLAMA_SERVER=path python -m tests.peer.record`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.peer.servers import llama_server, serving
from tests.peer.suites import SUITES

RECORDED = Path(__file__).parent / "recorded"
DIGITS = 6


def recorded(suite: str) -> dict[str, Any]:
    """llama-server's answers by the name of the request."""
    found: dict[str, Any] = json.loads(_file(suite).read_text())
    return found


def _file(suite: str) -> Path:
    return RECORDED / f"{suite.replace(', ', '-').replace(' ', '-')}.json"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, DIGITS)
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return value


def main() -> None:
    RECORDED.mkdir(exist_ok=True)
    for name, suite in SUITES.items():
        with tempfile.TemporaryDirectory() as folder:
            model, options = suite.make(Path(folder))
            with serving((llama_server(),), model, options) as server:
                answers = {ask: _rounded(get(server)) for ask, get in suite.asks.items()}
        lines = ",\n".join(f"{json.dumps(ask)}: {json.dumps(answer)}" for ask, answer in answers.items())
        _file(name).write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    if not llama_server():
        sys.exit("LLAMA_SERVER must name a llama-server program")
    main()

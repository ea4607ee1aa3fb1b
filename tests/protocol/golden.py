"""The golden files: the bytes of every struct, one file per module. `python -m tests.protocol.golden` writes them anew.

That is right for a new message or a new field at the end, after a look at the difference; never to make a test pass.
"""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from tests.protocol.samples import full, minimal, structs

FOLDER = Path(__file__).parent / "golden"


def encoded() -> dict[str, dict[str, dict[str, str]]]:
    """Module -> struct -> `full` and `minimal` -> MessagePack in hexadecimal digits."""
    files: dict[str, dict[str, dict[str, str]]] = {}
    for struct in structs():
        module = struct.__module__.rpartition(".")[2]
        files.setdefault(module, {})[struct.__name__] = {
            "full": msgspec.msgpack.encode(full(struct)).hex(),
            "minimal": msgspec.msgpack.encode(minimal(struct)).hex(),
        }
    return files


def stored() -> dict[str, dict[str, dict[str, str]]]:
    return {file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob("*.json"):
        file.unlink()
    for module, content in encoded().items():
        (FOLDER / f"{module}.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()

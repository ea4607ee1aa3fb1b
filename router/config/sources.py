"""Model files that were not named one by one: those in `--models-dir`, two levels deep."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from router.config.errors import ConfigError
from router.config.facts import SHARD

DRAFT_PREFIXES = ("mtp-", "dspark-", "dflash-")
PROJECTOR = "mmproj"


class Found(Struct, frozen=True):
    """A model as its source shows it. `source` is `models_dir` or `cache`."""

    id: str
    source: str
    model: str
    mmproj: str = ""


def is_projector(name: str) -> bool:
    return PROJECTOR in name.lower()


def is_draft(name: str) -> bool:
    return name.lower().startswith(DRAFT_PREFIXES)


def scan_models_dir(folder: str | Path) -> tuple[Found, ...]:
    """Models in a folder, by id. Raises `ConfigError` if it cannot be read.

    A file `x.gguf` is the model `x`; a subfolder `y` is the model `y`: its first shard or its GGUF file, with a
    projector (a name with `mmproj`) beside it. Heads for drafting (names that begin with `mtp-`, …) are no models.
    """
    found: dict[str, Found] = {}
    for entry in _entries(Path(folder)):
        if entry.is_dir():
            model = _subfolder(Path(entry.path))
            if model is not None:
                found[model.id] = model
        elif _is_gguf(entry) and not is_projector(entry.name) and not is_draft(entry.name):
            shard = SHARD.match(entry.name)
            if shard is None:
                name = entry.name.removesuffix(".gguf")
                found[name] = Found(name, "models_dir", entry.path)
            elif int(shard["number"]) == 1:
                found[shard["stem"]] = Found(shard["stem"], "models_dir", entry.path)
    return tuple(found[name] for name in sorted(found))


def _subfolder(folder: Path) -> Found | None:
    model = first_shard = projector = ""
    try:
        entries = _entries(folder)
    except ConfigError:
        # One folder that may not be read hides no other model.
        return None
    for entry in entries:
        if not _is_gguf(entry):
            continue
        shard = SHARD.match(entry.name)
        if is_projector(entry.name):
            projector = projector or entry.path
        elif is_draft(entry.name):
            continue
        elif shard is not None:
            if int(shard["number"]) == 1:
                first_shard = first_shard or entry.path
        else:
            model = model or entry.path
    path = first_shard or model
    return Found(folder.name, "models_dir", path, projector) if path else None


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise ConfigError(f"cannot read the folder of models {folder}: {error.strerror}") from None


def _is_gguf(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.name.endswith(".gguf") and entry.is_file()
    except OSError:
        return False

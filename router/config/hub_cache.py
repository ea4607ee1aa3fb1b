"""Models in the hub's local cache, found by its folder layout alone: no network, no hub library.

`$HF_HUB_CACHE` (or `$HF_HOME/hub`) holds `models--user--repo/snapshots/<commit>/…`, whose files are links to finished
blobs. A file that is still being fetched has no link, so nothing half-written is found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from router.config.errors import BadHeader
from router.config.facts import SHARD, shards
from router.config.sources import Found, is_draft, is_projector

_TAG = re.compile(r"[-.]([A-Za-z0-9_]+)$")
_PROJECTOR_ORDER = ("f16", "bf16", "q8_0", "f32")
_DRAFTS = ("eagle3-",)


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Where the hub's libraries keep models, by the variables that they read."""
    if environ.get("HF_HUB_CACHE"):
        return Path(environ["HF_HUB_CACHE"]).expanduser()
    if environ.get("HF_HOME"):
        return Path(environ["HF_HOME"]).expanduser() / "hub"
    base = environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "huggingface" / "hub"


def scan_hub_cache(folder: Path) -> tuple[Found, ...]:
    """Models in the cache by id, `user/repo:Q4_K_M`. A cache that is not there holds none."""
    found: dict[str, Found] = {}
    for repository in sorted(_listing(folder)):
        if not repository.startswith("models--"):
            continue
        name = repository.removeprefix("models--").replace("--", "/")
        snapshot = _snapshot(folder / repository)
        if snapshot is None:
            continue
        for model in _models(name, snapshot):
            found.setdefault(model.id, model)
    return tuple(found[name] for name in sorted(found))


def tag_of(path: Path) -> str:
    """The quantisation in a file's name, upper case; "" if there is none."""
    shard = SHARD.match(path.name)
    stem = shard["stem"] if shard is not None else path.name.removesuffix(".gguf")
    match = _TAG.search(stem)
    return match[1].upper() if match is not None else ""


def _models(repository: str, snapshot: Path) -> Iterator[Found]:
    files = sorted(path for path in _walk(snapshot, depth=3) if path.name.endswith(".gguf"))
    projectors = [path for path in files if is_projector(path.name)]
    for path in files:
        if is_projector(path.name) or is_draft(path.name) or path.name.lower().startswith(_DRAFTS):
            continue
        shard = SHARD.match(path.name)
        if shard is not None and int(shard["number"]) != 1:
            continue
        try:
            shards(path)
        except BadHeader:
            # Some shards have not been fetched: not a model yet.
            continue
        tag = tag_of(path)
        projector = _projector(path, projectors)
        yield Found(f"{repository}:{tag}" if tag else repository, "cache", str(path), projector)


def _projector(model: Path, projectors: list[Path]) -> str:
    """The projector for a model: in its folder rather than elsewhere, then by precision."""

    def rank(path: Path) -> tuple[bool, int, str]:
        tag = tag_of(path).lower()
        order = _PROJECTOR_ORDER.index(tag) if tag in _PROJECTOR_ORDER else len(_PROJECTOR_ORDER)
        return path.parent != model.parent, order, path.name

    return str(min(projectors, key=rank)) if projectors else ""


def _snapshot(repository: Path) -> Path | None:
    """The snapshot that the branch `main` names, or else the newest one."""
    try:
        commit = (repository / "refs" / "main").read_text().strip()
    except (OSError, UnicodeDecodeError):
        commit = ""
    snapshots = repository / "snapshots"
    if commit and "/" not in commit and (snapshots / commit).is_dir():
        return snapshots / commit
    folders = [snapshots / name for name in _listing(snapshots)]
    return max(folders, key=_modified, default=None)


def _walk(folder: Path, depth: int) -> Iterator[Path]:
    for name in _listing(folder):
        path = folder / name
        if path.is_file():
            yield path
        elif depth > 1 and path.is_dir():
            yield from _walk(path, depth - 1)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _listing(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []

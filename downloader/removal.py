"""Which files of a repository go when a model is deleted: pure."""

from __future__ import annotations

from collections.abc import Iterable, Set

from downloader import names


def doomed_paths(existing: Set[str], wanted: Iterable[str]) -> set[str]:
    """The files to delete, of those that exist in any revision, when `wanted` ones are named.

    A shard takes its siblings with it. Projectors and drafts accompany every model of their repository, so they go
    with the last one.
    """
    named = set(wanted) & existing
    splits = {(shard.prefix, shard.count) for shard in map(names.shard_of, named)}
    doomed = {path for path in existing if _split(path) in splits}
    if any(names.is_model(path) for path in doomed) and not any(names.is_model(path) for path in existing - doomed):
        doomed |= {path for path in existing if names.is_projector(path) or names.is_draft(path)}
    return doomed


def _split(path: str) -> tuple[str, int]:
    shard = names.shard_of(path)
    return shard.prefix, shard.count

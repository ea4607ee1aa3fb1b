"""From a reference and the list of a repository's files to a plan: pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from downloader import names
from downloader.faults import DownloadFault, invalid
from downloader.reference import Reference, check_path
from protocol.download import DownloadChoice, FileRole, Plan, PlanFile
from protocol.errors import ErrorKind

PREFERRED = ("Q4_K_M", "Q8_0")
"""Tried in this order when a reference names no quantization; then the first model of the repository."""

_LISTED = 20
_LABELS: tuple[Callable[[str], str], ...] = (
    names.quant_of,
    names.tag_of,
    lambda path: names.quant_of(path).removeprefix("UD-"),
)


class Entry(Struct, frozen=True):
    """One file of a repository. `blob` is its SHA-256 (large files) or git object id; size in bytes."""

    path: str
    size: int
    blob: str


class Listing(Struct, frozen=True):
    """A repository at one commit, from the hub or from the cache. `repo` has the hub's own spelling."""

    repo: str
    commit: str
    entries: tuple[Entry, ...]


def resolve(reference: Reference, choice: DownloadChoice, listing: Listing, cached: bool = False) -> Plan:
    """Choose the files. Raises `DownloadFault` that names what exists instead."""
    entries = sorted((entry for entry in listing.entries if names.is_gguf(entry.path)), key=lambda entry: entry.path)
    for entry in entries:
        check_path(entry.path)
    if not entries:
        raise _not_found(f"{listing.repo} holds no GGUF file")
    first = _by_path(reference.path, entries) if reference.path else _by_quant(reference, entries)
    model = _shards(first, entries)
    files = [_file(entry, FileRole.MODEL) for entry in model]
    if names.is_model(first.path):
        files += _companions(choice.projector, "projector", FileRole.PROJECTOR, names.is_projector, first, entries)
        files += _companions(choice.draft, "draft", FileRole.DRAFT, names.is_draft, first, entries)
    taken = {file.path for file in files}
    optional = [
        _file(entry, FileRole.PROJECTOR if names.is_projector(entry.path) else FileRole.DRAFT)
        for entry in entries
        if (names.is_projector(entry.path) or names.is_draft(entry.path)) and entry.path not in taken
    ]
    return Plan(
        model=names.model_id(listing.repo, first.path),
        repo=listing.repo,
        revision=reference.revision,
        commit=listing.commit,
        files=tuple(files),
        optional=tuple(optional),
        cached=cached,
    )


def _by_path(path: str, entries: Sequence[Entry]) -> Entry:
    same = [entry for entry in entries if entry.path == path]
    if not same:
        same = [entry for entry in entries if entry.path.lower() == path.lower()]
    if len(same) > 1:
        raise invalid(f"'{path}' could be any of {_list([entry.path for entry in same])}: spell it exactly")
    if not same:
        raise _not_found(f"there is no file '{path}'; the GGUF files are {_list([entry.path for entry in entries])}")
    shard = names.shard_of(same[0].path)
    if shard.index == 1:
        return same[0]
    wanted = names.Shard(shard.prefix, 1, shard.count)
    firsts = [entry for entry in entries if names.shard_of(entry.path) == wanted]
    if not firsts:
        raise _not_found(f"the first shard of '{path}' is missing from the repository")
    return firsts[0]


def _by_quant(reference: Reference, entries: Sequence[Entry]) -> Entry:
    models = [e for e in entries if names.is_model(e.path) and names.shard_of(e.path).index == 1]
    if not models:
        raise _not_found(f"{reference.repo} holds no model, only {_list([entry.path for entry in entries])}")
    for wanted in [reference.quant] if reference.quant else PREFERRED:
        found = _matching(wanted.upper(), models)
        if found:
            return found[0]
    if reference.quant:
        existing = names.quants(entry.path for entry in models)
        raise _not_found(f"{reference.repo} has no quantization '{reference.quant}'; it has {_list(existing)}")
    return models[0]


def _matching(quant: str, models: Sequence[Entry]) -> list[Entry]:
    """Models of a quantization: exact label first, then the tag of its id, then the label without `UD-`."""
    for label in _LABELS:
        found = [entry for entry in models if label(entry.path) == quant]
        if found:
            # The shallowest and shortest name is the plain model; variants append to it.
            return sorted(found, key=lambda entry: (entry.path.count("/"), len(entry.path), entry.path))
    return []


def _shards(first: Entry, entries: Sequence[Entry]) -> list[Entry]:
    shard = names.shard_of(first.path)
    if shard.count == 1:
        return [first]
    by_index = {}
    for entry in entries:
        other = names.shard_of(entry.path)
        if other.prefix == shard.prefix and other.count == shard.count:
            by_index[other.index] = entry
    missing = [index for index in range(1, shard.count + 1) if index not in by_index]
    if missing:
        raise _not_found(f"the repository lacks {len(missing)} of {shard.count} shards of '{first.path}'")
    return [by_index[index] for index in range(1, shard.count + 1)]


def _companions(
    wish: str, what: str, role: FileRole, is_kind: Callable[[str], bool], model: Entry, entries: Sequence[Entry]
) -> list[PlanFile]:
    candidates = [entry for entry in entries if is_kind(entry.path)]
    if wish == "none":
        return []
    if wish == "auto":
        return [_file(_nearest(model, candidates), role)] if candidates else []
    named = [e for e in candidates if wish.lower() in (e.path.lower(), e.path.rsplit("/", 1)[-1].lower())]
    named = named or _matching(wish.upper(), candidates)
    if not named:
        raise _not_found(f"there is no {what} '{wish}'; there is {_list([entry.path for entry in candidates])}")
    return [_file(named[0], role)]


def _nearest(model: Entry, candidates: Sequence[Entry]) -> Entry:
    """The candidate in the folder nearest to the model's, then with the closest number of bits."""
    folders = model.path.split("/")[:-1]
    bits = names.bits_of(model.path)

    def distance(entry: Entry) -> tuple[int, int, str]:
        shared = 0
        for ours, theirs in zip(folders, entry.path.split("/")[:-1], strict=False):
            if ours != theirs:
                break
            shared += 1
        return (-shared, abs(names.bits_of(entry.path) - bits), entry.path)

    return min(candidates, key=distance)


def _file(entry: Entry, role: FileRole) -> PlanFile:
    return PlanFile(entry.path, entry.size, entry.blob, role)


def _not_found(message: str) -> DownloadFault:
    return DownloadFault(ErrorKind.NOT_FOUND, message)


def _list(values: Sequence[str]) -> str:
    if not values:
        return "none"
    more = f" and {len(values) - _LISTED} more" if len(values) > _LISTED else ""
    return ", ".join(values[:_LISTED]) + more

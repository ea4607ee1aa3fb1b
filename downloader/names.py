"""What GGUF file names say: quantization, shards, and files that accompany a model."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

_SHARD = re.compile(r"(?P<prefix>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})", re.IGNORECASE)
_TAG = re.compile(r"[-.]([A-Z0-9_]+)$", re.IGNORECASE)
_QUANT = re.compile(
    r"(?<![A-Z0-9])((?:UD-)?(?:I?Q\d+_[A-Z0-9]+(?:_[A-Z0-9]+)*|Q\d+|TQ\d_\d|BF16|F16|FP16|F32|FP32|MXFP4(?:_MOE)?|NVFP4))"
    r"(?![A-Z0-9])",
    re.IGNORECASE,
)
_DRAFTS = ("mtp-", "eagle3-", "dflash-", "dspark-")
_DIGITS = re.compile(r"\d+")


class Shard(Struct, frozen=True):
    """A file's place in a split model: `index` counts from 1; a whole file is shard 1 of 1."""

    prefix: str
    index: int
    count: int


def shard_of(path: str) -> Shard:
    """The shard that `path` is, by its name; the prefix is a path without extension."""
    stem = _stem(path)
    match = _SHARD.fullmatch(stem)
    if match is None:
        return Shard(stem, 1, 1)
    return Shard(match["prefix"], int(match["index"]), int(match["count"]))


def is_gguf(path: str) -> bool:
    return path.lower().endswith(".gguf")


def is_projector(path: str) -> bool:
    return is_gguf(path) and "mmproj" in _file(path)


def is_draft(path: str) -> bool:
    """A sidecar for speculative decoding (multi-token prediction heads and the like)."""
    return is_gguf(path) and _file(path).startswith(_DRAFTS)


def is_model(path: str) -> bool:
    """A language model or embedder: no projector, no draft sidecar, no importance matrix."""
    return is_gguf(path) and not is_projector(path) and not is_draft(path) and "imatrix" not in _file(path)


def tag_of(path: str) -> str:
    """The tag of a model id, upper case: what stands behind the last '-' or '.' of the name without shard number.

    The same rule as llama-server's, so that ids in the cache agree; empty where the name has no such part.
    """
    match = _TAG.search(shard_of(path).prefix)
    return match[1].upper() if match else ""


def quant_of(path: str) -> str:
    """The quantization in a file's name, else in its folder's name, upper case; else the tag."""
    for part in reversed(shard_of(path).prefix.split("/")):
        found = _QUANT.findall(part)
        if found:
            return str(found[-1]).upper()
    return tag_of(path)


def bits_of(path: str) -> int:
    """Bits per weight as the quantization's name has them (Q4_K_M: 4, BF16: 16); 0 when unknown."""
    match = _DIGITS.search(quant_of(path))
    return int(match[0]) if match else 0


def model_id(repo: str, path: str) -> str:
    """The id under which a file of a repository is listed."""
    tag = tag_of(path)
    return f"{repo}:{tag}" if tag else repo


def quants(paths: Iterable[str]) -> list[str]:
    """The distinct quantizations of the models among `paths`, sorted."""
    return sorted({quant_of(path) for path in paths if is_model(path)})


def _stem(path: str) -> str:
    return path[: -len(".gguf")] if is_gguf(path) else path


def _file(path: str) -> str:
    return path.rsplit("/", 1)[-1].lower()

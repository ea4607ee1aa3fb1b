"""Shares the cores out among the workers that compute: each wants all of them, and together that ruins everybody.

llama.cpp's threads spin at barriers, so two models with all cores each are far slower than with half of them each.
"""

from __future__ import annotations

from typing import NamedTuple


class Claim(NamedTuple):
    """A computing worker. `reserved` cores were promised to it (0 = none); one that computes on a GPU needs one."""

    key: str
    reserved: int = 0
    on_gpu: bool = False


def shares(claims: list[Claim], cores: int) -> dict[str, int]:
    """Threads for each computing worker, at least one. Alone, a worker gets all cores, or what it reserved."""
    result: dict[str, int] = {}
    open_claims: list[str] = []
    left = cores
    for claim in claims:
        if claim.reserved or (claim.on_gpu and len(claims) > 1):
            result[claim.key] = max(1, min(claim.reserved or 1, cores))
            left -= result[claim.key]
        else:
            open_claims.append(claim.key)
    for index, key in enumerate(open_claims):
        share, rest = divmod(max(left, 0), len(open_claims))
        result[key] = max(1, share + (index < rest))
    return result

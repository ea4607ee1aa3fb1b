"""Whether two answers are the same, within what floating point leaves open."""

from __future__ import annotations

import math
from typing import Any

LOGPROB = 1e-3
PROBABILITY = 1e-3
SCORE = 1e-3
COSINE = 1e-4


def differences(theirs: Any, ours: Any) -> list[str]:
    """What differs between two answers of a suite, in words; empty if they agree."""
    found = [
        f"{name}: {theirs[name]!r} there, {ours[name]!r} here"
        for name in ("tokens", "content", "stop_type")
        if theirs.get(name) != ours.get(name)
    ]
    if "logprobs" in theirs and not found:
        found += _steps(theirs["logprobs"], ours["logprobs"], LOGPROB)
    if "probs" in theirs and not found:
        found += _steps(theirs["probs"], ours["probs"], PROBABILITY)
    if "vector" in theirs:
        found += _vectors(theirs["vector"], ours["vector"])
    if "scores" in theirs:
        found += _scores(theirs["scores"], ours["scores"])
    return found


def _steps(theirs: list[dict[str, float]], ours: list[dict[str, float]], tolerance: float) -> list[str]:
    if len(theirs) != len(ours):
        return [f"{len(theirs)} steps there, {len(ours)} here"]
    found = []
    for step, (there, here) in enumerate(zip(theirs, ours, strict=True)):
        if len(there) != len(here):
            found.append(f"step {step}: {len(there)} candidates there, {len(here)} here")
        least = min(there.values(), default=0.0)
        for token, value in there.items():
            # At the end of the list two candidates may be as likely as each other: either may be named.
            if token not in here and value > least + tolerance:
                found.append(f"step {step}: token {token} ({value:.5f}) is missing")
            elif token in here and abs(here[token] - value) > tolerance:
                found.append(f"step {step}: token {token} has {value:.5f} there, {here[token]:.5f} here")
    return found


def _vectors(theirs: Any, ours: Any) -> list[str]:
    if theirs and isinstance(theirs[0], list):
        if len(theirs) != len(ours):
            return [f"{len(theirs)} vectors there, {len(ours)} here"]
        return [line for there, here in zip(theirs, ours, strict=True) for line in _vectors(there, here)]
    length = math.hypot(*theirs)
    cosine = sum(a * b for a, b in zip(theirs, ours, strict=True)) / (length * math.hypot(*ours))
    found = [f"cosine {cosine:.6f}"] if cosine < 1 - COSINE else []
    if abs(math.hypot(*ours) / length - 1) > COSINE:
        found.append(f"length {length:.6f} there, {math.hypot(*ours):.6f} here")
    return found


def _scores(theirs: list[list[float]], ours: list[list[float]]) -> list[str]:
    if [index for index, _ in theirs] != [index for index, _ in ours]:
        return [f"order {theirs} there, {ours} here"]
    return [
        f"document {index}: {there:.5f} there, {here:.5f} here"
        for (index, there), (_, here) in zip(theirs, ours, strict=True)
        if abs(there - here) > SCORE
    ]

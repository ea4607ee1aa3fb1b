"""Memory by reservation: what models occupy together on each device, and whether one more fits."""

from __future__ import annotations

from collections.abc import Iterable

from router.scheduling.model import Needs


def occupied(needs: Iterable[Needs]) -> dict[str, int]:
    """Bytes per device that these models occupy together; a file that several of them map is charged once."""
    total: dict[str, int] = {}
    files: dict[tuple[str, str], int] = {}
    for model in needs:
        for need in model:
            total[need.device] = total.get(need.device, 0) + need.private
            for file, size in need.shared:
                key = (need.device, file)
                if size > files.get(key, 0):
                    total[need.device] += size - files.get(key, 0)
                    files[key] = size
    return total


def overdraft(budget: tuple[tuple[str, int], ...], needs: Iterable[Needs]) -> dict[str, int]:
    """Bytes per device by which these models exceed the budget; empty when they fit."""
    if not budget:
        return {}
    use = occupied(needs)
    return {device: use[device] - limit for device, limit in budget if use.get(device, 0) > limit}


def lacking(free: Iterable[tuple[str, int]], needs: Needs, mapped: Iterable[Needs]) -> dict[str, int]:
    """Bytes per device that a reading of free memory says are missing. Files that are mapped already cost nothing."""
    present = {(need.device, file) for model in mapped for need in model for file, _ in need.shared}
    missing: dict[str, int] = {}
    available = dict(free)
    for need in needs:
        wanted = need.private + sum(size for file, size in need.shared if (need.device, file) not in present)
        if need.device in available and wanted > available[need.device]:
            missing[need.device] = wanted - available[need.device]
    return missing


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


def numbers(budget: tuple[tuple[str, int], ...], mine: Needs, fixed: Iterable[Needs]) -> str:
    """The refusal of a need that cannot fit, with its numbers. `fixed` is what nobody may free."""
    limits = dict(budget)
    held = occupied(fixed)
    alone = occupied([mine])
    together = occupied([*fixed, mine])
    parts = []
    for device, use in together.items():
        if use > limits.get(device, use):
            part = f"{size(alone.get(device, 0))} needed on {device}, the budget is {size(limits[device])}"
            if held.get(device):
                part += f", of which {size(held[device])} cannot be freed"
            parts.append(part)
    return "; ".join(parts)

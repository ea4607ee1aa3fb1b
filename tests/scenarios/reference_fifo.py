"""The yardstick: how many loads a plain coalescing first-in-first-out queue with room for one model needs."""

from __future__ import annotations

from collections.abc import Iterable

Recorded = tuple[str, int, str]
"""("arrive" | "end" | "leave", request, model), in the order in which it happened."""


def loads(recorded: Iterable[Recorded]) -> int:
    """Replay what happened: requests for one model share an entry, entries are served whole and in order."""
    resident, count = "", 0
    running: set[int] = set()
    ended: set[int] = set()
    entries: dict[str, set[int]] = {}
    for kind, request, model in recorded:
        if kind == "arrive" and model == resident and not entries:
            running.add(request)
        elif kind == "arrive":
            entries.setdefault(model, set()).add(request)
        else:
            running.discard(request)
            ended.add(request)
            if kind == "leave" and model in entries and not entries[model] - ended:
                del entries[model]
        while not running and entries:
            entered = next(iter(entries))
            running = entries.pop(entered) - ended
            count += entered != resident
            resident = entered
    return count

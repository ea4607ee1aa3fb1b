"""The yardstick: how many loads a plain coalescing first-in-first-out queue with room for one model needs."""

from __future__ import annotations

from collections.abc import Iterable

Recorded = tuple[str, int, str]
"""("arrive" | "end" | "leave", request, model), in the order in which it happened."""


def loads(recorded: Iterable[Recorded]) -> int:
    """Replay what happened: requests for one model share an entry, entries are served whole and in order.

    The next entry's turn comes when nothing of the entry before runs any more, or when one of its requests has ended.
    """
    resident, count = "", 0
    running: set[int] = set()
    entries: dict[str, set[int]] = {}
    for kind, request, model in recorded:
        if kind == "arrive" and model == resident and not entries:
            running.add(request)
        elif kind == "arrive":
            entries.setdefault(model, set()).add(request)
        elif kind == "leave":
            running.discard(request)
            entries.get(model, set()).discard(request)
            entries = {name: waiting for name, waiting in entries.items() if waiting}
        while True:
            served = request not in entries.get(model, ())
            if kind == "end" and served:
                running.discard(request)
            if not entries or (running and (kind != "end" or served)):
                break
            entered = next(iter(entries))
            running = entries.pop(entered)
            count, resident = count + (entered != resident), entered
    return count

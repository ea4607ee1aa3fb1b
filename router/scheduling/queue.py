"""Who waits, in which order, for how long yet: lines of requests, the queue of models, limits and estimates."""

from __future__ import annotations

import bisect
import operator
from collections.abc import Iterable

from router.scheduling.model import ModelEntry, Policy
from router.scheduling.records import Model, Request, Urge

_rank = operator.attrgetter("rank")

ESTIMATE_FLOOR = 1.0
ESTIMATE_CEILING = 600.0


def insert(line: list[Request], request: Request) -> None:
    """Put a request at the place of its priority and arrival."""
    if line and line[-1].rank > request.rank:
        bisect.insort(line, request, key=_rank)
    else:
        line.append(request)


def first_come(model: Model) -> Request | None:
    """The oldest request that waits for its first turn; one that was parked has had a turn."""
    waiting = (request for line in (model.waiting, model.light) for request in line if not request.parked)
    return min(waiting, key=operator.attrgetter("seq"), default=None)


def priority(model: Model) -> int:
    """The priority at which a model waits: that of its most urgent request."""
    asked = [model.entry.priority] if model.urge else []
    return max([line[0].priority for line in (model.waiting, model.light) if line] + asked, default=0)


def in_order(queue: Iterable[Model]) -> list[Model]:
    """The order in which models get room: requests before background loads, then priority, then first come."""

    def place(model: Model) -> tuple[bool, bool, int, int]:
        behind = not model.busy and model.urge in (Urge.BACKGROUND, Urge.HOME)
        return (not model.turn, behind, -priority(model), model.queued_seq)

    return sorted(queue, key=place)


def queue_limit(entry: ModelEntry, policy: Policy) -> int:
    """Requests that may wait for a model, 0 = any number."""
    return entry.queue_limit or policy.queue_limit


def wait_limit(entry: ModelEntry, policy: Policy) -> float:
    """Seconds that a request may wait for its lease, 0 = for ever."""
    return entry.wait_limit or policy.wait_limit


def estimate(model: Model, ahead: Iterable[Model], policy: Policy) -> float:
    """Seconds until a request that comes now would be served, for `Retry-After`."""
    in_line = len(model.waiting) + len(model.light) + model.leases
    seconds = model.service_seconds * in_line / model.capacity
    for other in ahead:
        seconds += other.load_seconds + min(other.service_seconds, policy.drain_timeout)
    return min(max(seconds, ESTIMATE_FLOOR), ESTIMATE_CEILING)

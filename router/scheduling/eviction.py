"""Which models leave for another one: pure, may neither log nor change anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from router.scheduling.records import Model
from router.scheduling.states import PROMISED, State


def idle(model: Model) -> bool:
    """May leave at once: nobody uses it, waits for it or asked for it, and it is not pinned.

    A load that nobody waits for any more counts as idle.
    """
    if model.pin or model.busy or model.urge:
        return False
    return model.state is State.READY or model.state in PROMISED


def drainable(model: Model) -> bool:
    """May leave once what it runs has ended or is parked."""
    return not model.pin and model.state in (State.READY, State.DRAINING, State.FALLING_ASLEEP)


def by_worth(model: Model) -> tuple[int, float]:
    """Sorts the least valuable first: lower priority, then least recently used."""
    return (model.entry.priority, model.last_used)


def choose(candidates: Sequence[Model], suffices: Callable[[list[Model]], bool]) -> list[Model] | None:
    """The first of `candidates` (least valuable first) that suffice together, without those that proved needless.

    None when not even all of them suffice.
    """
    chosen: list[Model] = []
    for model in candidates:
        if suffices(chosen):
            break
        chosen.append(model)
    if not suffices(chosen):
        return None
    for model in reversed(chosen[:-1]):
        rest = [other for other in chosen if other is not model]
        if suffices(rest):
            chosen = rest
    return chosen

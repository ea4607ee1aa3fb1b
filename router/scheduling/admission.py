"""Who gets room next: the queue of models against the budget, by count and by reserved memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from protocol.errors import ErrorKind
from router.scheduling import budget, eviction, queue, swap, workers
from router.scheduling.dispatch import announce
from router.scheduling.events import ExitReason
from router.scheduling.ledger import Ledger
from router.scheduling.model import Need, Needs
from router.scheduling.records import DrainCause, Model, Urge
from router.scheduling.states import PROMISED, WITHOUT_WORKER, State, Trigger

UNKNOWN = Need("", 0)
"""Stands for the need of a model about which nothing is known: no budget limits it."""


@dataclass(slots=True)
class Room:
    """What has been promised to the models ahead in the queue."""

    leaving: set[str] = field(default_factory=set)
    """Models that go for somebody ahead."""
    reserved: list[Needs] = field(default_factory=list)
    count: int = 0
    """Models ahead that wait for room."""
    feasible: bool = True
    """Everybody ahead knows who leaves for it: the others may be chosen for those behind."""
    draining_for: set[str] = field(default_factory=set)


def plan(ledger: Ledger) -> None:
    """Go through the queue: load or wake what fits, evict or drain for what does not, say why for the rest."""
    room = Room()
    for place, model in enumerate(queue.in_order(ledger.queue.values())):
        moved = model.place != place
        model.place = place
        was_coming, model.coming = model.coming, False
        blocked = _consider(ledger, model, room)
        ledger.workers_changed |= model.coming != was_coming
        if blocked is None:
            continue
        if model.key in ledger.queue and (blocked != model.blocked or moved):
            model.blocked = blocked
            ledger.changed.add(model.key)
            announce(ledger, model)
    for worker in list(ledger.workers.values()):
        leaving = worker.model
        if leaving is None or leaving.drain is not DrainCause.SWAP or leaving.key in room.draining_for:
            continue
        swap.resume(ledger, leaving, "its room is not wanted any more")


def _consider(ledger: Ledger, model: Model, room: Room) -> str | None:
    """Decide about one model; None when it is settled, otherwise what blocks it."""
    refusal = impossible(ledger, model)
    if refusal:
        ledger.record(model.key, "refuse", refusal)
        ledger.queue.pop(model.key, None)
        if model.state in (State.UNLOADED, State.BACKOFF):
            model.retry_at = ledger.now
            ledger.move(model, Trigger.FAILED, refusal)
        ledger.end_waiting(model, ErrorKind.LOAD_FAILED, f"{_name(model)} does not fit: {refusal}")
        return None
    if model.retry_at > ledger.now and model.state in WITHOUT_WORKER:
        ledger.alarms.at(model.retry_at)
        return f"starts again in {model.retry_at - ledger.now:.1f} s, after {len(model.failures)} failures"
    if model.state not in WITHOUT_WORKER and model.state is not State.SLEEPING:
        _promise(room, model, {model.key})  # its own worker leaves first
        return f"its worker is {model.state.replace('_', ' ')}"
    unhurried = not model.busy and model.urge in (Urge.HOME, Urge.BACKGROUND)
    if unhurried and (room.count or any(other.state in PROMISED for other in ledger.models.values())):
        return "waits behind other loads"
    if model.must_evict and not any(not other.pin for other in ledger.resident() if other is not model):
        model.must_evict = 0
    awaited = any(child in ledger.workers and not ledger.workers[child].stuck for child in model.awaited)
    if not awaited and not model.must_evict and _fits(ledger, model, room, set(), now=True):
        _admit(ledger, model)
        return None
    if unhurried and model.urge is Urge.BACKGROUND:
        model.urge = Urge.NONE
        ledger.touch(model)
        ledger.record(model.key, "skip", "no room is free for a load in the background")
        return None
    return _make_room(ledger, model, room)


def _admit(ledger: Ledger, model: Model) -> None:
    waiting = len(model.waiting) + len(model.light)
    reason = f"{waiting} waiting" if waiting else model.urge.name.lower()
    if model.state is State.SLEEPING:
        workers.wake(ledger, model, reason)
    else:
        workers.start(ledger, model, reason)
    announce(ledger, model)


def _make_room(ledger: Ledger, model: Model, room: Room) -> str:
    """Find who leaves for `model`: those who go anyway, then idle ones, then busy ones after the swap wait."""
    resident = [other for other in ledger.resident() if other is not model and other.key not in room.leaving]
    going = {other.key for other in resident if other.state is State.STOPPING and not _stuck(other)}

    def suffices(victims: list[Model]) -> bool:
        return _fits(ledger, model, room, going | {victim.key for victim in victims}, now=False)

    idle = sorted((other for other in resident if _may_evict(model, other)), key=eviction.by_worth)
    victims = eviction.choose(idle, suffices)
    if victims == [] and model.must_evict and not going:
        victims = idle[:1] or None
    if victims is not None and room.feasible:
        for victim in victims:
            workers.stop(ledger, victim, ExitReason.EVICTED, f"evicted for {_name(model)}")
        leaving = going | {victim.key for victim in victims}
        if model.must_evict:
            model.must_evict = 0
            model.awaited = tuple(other.worker.child for other in resident if other.key in leaving and other.worker)
        _promise(room, model, leaving)
        model.coming = model.state in WITHOUT_WORKER
        return f"waits until {_names(ledger, leaving | room.leaving)} has stopped"
    if victims is not None:
        _promise(room, model, going)
        return "waits for its turn"
    busy = sorted((other for other in resident if eviction.drainable(other) and other not in idle), key=_turn)
    if model.urge is Urge.HOME and not model.busy:
        busy = []
    drainees = eviction.choose([*idle, *busy], suffices)
    if not drainees and model.must_evict:
        drainees = busy[:1]
    if not drainees and model.urge is Urge.HOME and not model.busy:
        model.urge = Urge.NONE
        model.suppressed = True
        ledger.touch(model)
        return "no room at home"
    if not drainees:
        room.feasible = False
        _promise(room, model, going)
        return _hindrance(resident)
    _promise(room, model, going | {other.key for other in drainees})
    return _drain(ledger, model, [other for other in drainees if other not in idle], room)


def _drain(ledger: Ledger, model: Model, drainees: list[Model], room: Room) -> str:
    """Drain those whose time has come; set an alarm for the others."""
    words = []
    for other in drainees:
        if other.state is State.DRAINING:
            room.draining_for.add(other.key)
            words.append(f"{_name(other)} drains, {other.leases} still running")
            continue
        if other.state is not State.READY:
            words.append(f"{_name(other)} is {_state(other)}")
            continue
        at = swap.drain_at(model, other, ledger.policy)
        if ledger.now >= at:
            room.draining_for.add(other.key)
            model.turn = True
            turn = max(model.queued_seq, other.turn_seq)
            swap.drain(ledger, other, DrainCause.SWAP, f"{_name(model)} has waited long enough", turn)
            words.append(f"{_name(other)} drains, {other.leases} still running")
        else:
            ledger.alarms.at(at)
            words.append(f"{_name(other)} is in use and drains in {at - ledger.now:.0f} s at the latest")
    return "; ".join(words)


def _may_evict(model: Model, other: Model) -> bool:
    """Whether `other` may leave at once for `model`; a return home makes only strangers leave."""
    if model.urge is Urge.HOME and not model.busy and other.entry.home:
        return False
    return eviction.idle(other)


def _turn(model: Model) -> tuple[bool, int, float]:
    """Sorts busy models: those that drain already, then lower priority, then the longest turn in memory."""
    return (model.state is not State.DRAINING, model.entry.priority, model.ready_at)


def _promise(room: Room, model: Model, leaving: set[str]) -> None:
    room.leaving |= leaving
    room.reserved.append(model.entry.needs)
    room.count += 1


def _fits(ledger: Ledger, model: Model, room: Room, leaving: set[str], *, now: bool) -> bool:
    """Whether there is room for `model` once `leaving` and those who go for models ahead have left.

    With `now`, there must also be room at this moment, while everybody is still here.
    """
    gone = room.leaving | leaving
    if now and gone and not _room(ledger, model, set(), Room()):
        return False
    return _room(ledger, model, gone, room)


def _room(ledger: Ledger, model: Model, gone: set[str], room: Room) -> bool:
    policy = ledger.policy
    if policy.models_max:
        staying = sum(other.key not in gone and not _overlaps(ledger, model, other) for other in ledger.resident())
        if staying + room.count + 1 > policy.models_max:
            return False
    if policy.budget:
        held: Iterable[Needs] = (
            worker.needs
            for worker in ledger.reserved()
            if worker.stuck or worker.model is None or worker.model.key not in gone
        )
        return not budget.overdraft(policy.budget, [*held, *room.reserved, model.entry.needs])
    return True


def _overlaps(ledger: Ledger, model: Model, other: Model) -> bool:
    """Whether `model` may load while `other` still stops: where the memory of both is under the budget's control."""
    limited = {device for device, _ in ledger.policy.budget}
    return other.state is State.STOPPING and all(
        need.device in limited for entry in (model.entry, other.entry) for need in entry.needs or (UNKNOWN,)
    )


def impossible(ledger: Ledger, model: Model) -> str:
    """Why `model` can never have room as things are pinned and stuck, with the numbers; empty if it can."""
    policy = ledger.policy
    if model.state in PROMISED or model.state is State.READY:
        return ""
    pinned = [
        other for other in ledger.resident() if other.pin and other is not model and other.state is not State.STOPPING
    ]
    if policy.models_max and len(pinned) >= policy.models_max:
        return f"{_names(ledger, {other.key for other in pinned})} pinned, and models-max is {policy.models_max}"
    if policy.budget:
        fixed = [worker.needs for worker in ledger.workers.values() if worker.stuck]
        fixed += [other.worker.needs for other in pinned if other.worker and not other.worker.stuck]
        if budget.overdraft(policy.budget, [*fixed, model.entry.needs]):
            return budget.numbers(policy.budget, model.entry.needs, fixed)
    return ""


def _stuck(model: Model) -> bool:
    return model.worker is not None and model.worker.stuck


def _name(model: Model) -> str:
    return model.entry.names[0] if model.entry.names else model.key


def _names(ledger: Ledger, keys: set[str]) -> str:
    return ", ".join(sorted(_name(ledger.models[key]) for key in keys if key in ledger.models)) or "its own worker"


def _state(model: Model) -> str:
    return "pinned" if model.pin else model.state.replace("_", " ")


def _hindrance(resident: list[Model]) -> str:
    """Who holds the room that nobody can take now."""
    return "; ".join(f"{_name(other)} is {_state(other)}" for other in resident) or "waits for its turn"

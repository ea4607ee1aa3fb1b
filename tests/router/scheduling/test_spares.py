"""Warm spares: a swap takes one, and the refill waits until it disturbs nobody."""

from __future__ import annotations

from router.scheduling import effects, events
from router.scheduling.events import Child
from router.scheduling.model import ModelEntry
from router.scheduling.states import State
from tests.router.scheduling.rig import Rig, entry


def with_spare(*entries: ModelEntry, models_max: int = 0) -> tuple[Rig, Child]:
    rig = Rig(*(entries or (entry("a"), entry("b"))), spare_workers=1, models_max=models_max)
    spare = rig.one(effects.Spawn)
    assert spare.model is None
    rig.connect(spare.child)
    return rig, spare.child


def test_a_load_takes_a_connected_spare_at_once() -> None:
    rig, spare = with_spare()
    rig.ask("a")
    assert rig.one(effects.SendLoad) == effects.SendLoad(spare, "a")
    rig.none(effects.Spawn)


def test_the_refill_waits_for_the_first_answer() -> None:
    rig, _ = with_spare()
    request = rig.ask("a")
    rig.up("a")
    rig.none(effects.Spawn)
    rig.post(events.RequestAnswered(request))
    assert rig.one(effects.Spawn).model is None


def test_a_spare_that_is_not_connected_yet_is_nearer_than_a_new_process() -> None:
    rig = Rig(entry("a"), spare_workers=1)
    spare = rig.one(effects.Spawn).child
    rig.ask("a")
    rig.none(effects.Spawn)
    assert rig.child("a") == spare
    rig.connect(spare)
    assert rig.one(effects.SendLoad).child == spare


def test_a_model_with_an_environment_of_its_own_gets_a_process_of_its_own() -> None:
    rig, spare = with_spare(entry("a", default_environment=False))
    rig.ask("a")
    assert rig.one(effects.Spawn).model == "a"
    assert rig.child("a") != spare


def test_spares_that_die_are_replaced_with_pauses() -> None:
    rig, spare = with_spare()
    rig.exit(spare, -11)
    rig.none(effects.Spawn)
    rig.wait(1.0)
    assert rig.one(effects.Spawn).model is None


def test_fewer_spares_after_a_reload_are_stopped() -> None:
    rig, spare = with_spare()
    rig.post(events.ModelsChanged((entry("a"),), type(rig.policy)(spare_workers=0)))
    assert rig.one(effects.Stop).child == spare


def test_a_load_whose_client_left_before_an_answer_does_not_hold_the_refill_up_for_ever() -> None:
    rig, _ = with_spare()
    request = rig.ask("a")
    rig.post(events.RequestLeft(request))
    rig.up("a")
    assert rig.state("a") is State.READY
    assert rig.one(effects.Spawn).model is None


def test_the_process_of_the_next_model_starts_while_the_victim_stops() -> None:
    rig = Rig(entry("a"), entry("b"), models_max=1)
    child = rig.serve("a")
    waiter = rig.ask("b")
    spawned = rig.one(effects.Spawn)
    assert rig.one(effects.Stop).child == child
    rig.connect(spawned.child)
    rig.exit(child)
    assert rig.one(effects.SendLoad) == effects.SendLoad(spawned.child, "b")
    rig.up("b")
    assert rig.dispatched() == [waiter]


def test_a_process_that_was_started_for_nobody_is_stopped() -> None:
    rig = Rig(entry("a"), entry("b"), models_max=1)
    rig.serve("a")
    waiter = rig.ask("b")
    spawned = rig.one(effects.Spawn).child
    rig.post(events.RequestLeft(waiter))
    assert rig.one(effects.Stop).child == spawned


def swapped(rig: Rig, key: str, victim: str = "") -> Child:
    """A request brings a model into the only place, and is answered; the new spare, which is connected."""
    request = rig.ask(key)
    if victim:
        rig.exit(rig.child(victim), reason=events.ExitReason.EVICTED)
    child = rig.up(key)
    rig.post(events.RequestAnswered(request))
    spare = rig.one(effects.Spawn).child
    rig.end(request, child)
    rig.connect(spare)
    return spare


def test_a_spare_hears_which_models_were_used_last_and_have_no_worker() -> None:
    rig, _ = with_spare(*(entry(key) for key in "abcdef"), models_max=1)
    swapped(rig, "a")
    assert not rig.all_of(effects.SendForecast)
    for key, victim in ("ba", "cb", "dc"):
        rig.wait(1.0)
        spare = swapped(rig, key, victim)
    assert rig.all_of(effects.SendForecast)[-1] == effects.SendForecast(spare, ("c", "b", "a"))
    rig.wait(1.0)
    swapped(rig, "e", "d")
    assert rig.all_of(effects.SendForecast)[-1].models == ("d", "c", "b")


def test_a_forecast_never_reaches_a_spare_that_has_been_told_to_load() -> None:
    rig, _ = with_spare(entry("a"), entry("b"), models_max=1)
    swapped(rig, "a")
    spare = swapped(rig, "b", "a")
    assert rig.one(effects.SendForecast) == effects.SendForecast(spare, ("a",))
    rig.ask("a")
    rig.exit(rig.child("b"), reason=events.ExitReason.EVICTED)
    assert rig.one(effects.SendLoad) == effects.SendLoad(spare, "a")
    rig.up("a")
    rig.none(effects.SendForecast)


def test_a_forecast_waits_until_nothing_computes() -> None:
    rig, _ = with_spare(entry("a"), entry("b"), models_max=1)
    swapped(rig, "a")
    request = rig.ask("b")
    rig.exit(rig.child("a"), reason=events.ExitReason.EVICTED)
    child = rig.up("b")
    rig.post(events.RequestAnswered(request))
    spare = rig.one(effects.Spawn).child
    rig.connect(spare)
    rig.none(effects.SendForecast)
    rig.end(request, child)
    assert rig.one(effects.SendForecast) == effects.SendForecast(spare, ("a",))

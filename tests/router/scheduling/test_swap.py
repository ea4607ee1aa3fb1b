"""Eviction, draining, parking: nobody is thrown out under work, and nobody waits for ever."""

from __future__ import annotations

import pytest

from router.scheduling import effects, events
from router.scheduling.states import State
from tests.router.scheduling.rig import Rig, entry, host


def test_the_least_recently_used_idle_model_is_evicted() -> None:
    rig = Rig(entry("a"), entry("b"), entry("c"), models_max=2)
    for key in ("a", "b", "a"):
        rig.serve(key)
        rig.wait(1.0)
    rig.ask("c")
    assert rig.one(effects.Stop).child == rig.child("b")
    assert "evicted for c" in rig.view("b").reason


def test_lower_priority_leaves_first_and_pinned_models_never() -> None:
    rig = Rig(entry("a", priority=1), entry("b"), entry("c"), models_max=2)
    for key in ("b", "a"):
        rig.serve(key)
    rig.post(events.PinAsked("b", True))
    rig.ask("c")
    assert rig.one(effects.Stop).child == rig.child("a")


def test_a_busy_or_loading_model_is_no_victim() -> None:
    rig = Rig(entry("a"), entry("b"), entry("c"), models_max=2)
    rig.ask("a")
    rig.up("a")
    rig.ask("b")
    rig.ask("c")
    rig.none(effects.Stop)
    assert "a is in use" in rig.view("c").blocked


def test_the_victim_is_gone_before_the_next_one_loads() -> None:
    rig = Rig(entry("a"), entry("b"), models_max=1)
    child = rig.serve("a")
    rig.ask("b")
    spawned = rig.one(effects.Spawn).child
    rig.connect(spawned)
    rig.none(effects.SendLoad)
    assert rig.state("b") is State.UNLOADED
    assert rig.view("b").blocked == "waits until a has stopped"
    rig.exit(child)
    assert rig.one(effects.SendLoad) == effects.SendLoad(spawned, "b")


def test_the_next_one_loads_while_the_victim_stops_where_the_budget_has_room_for_both() -> None:
    rig = Rig(
        entry("a", needs=host(30)),
        entry("b", needs=host(30)),
        entry("c", needs=host(80)),
        models_max=1,
        budget=(("host", 100),),
    )
    free = events.MemoryRead((("host", 1000),))
    for key in ("a", "b"):
        request = rig.ask(key)
        if key == "b":
            assert rig.state("a") is State.STOPPING
        assert rig.state(key) is State.SPAWNING
        rig.post(free)
        rig.end(request, rig.up(key))
    rig.ask("c")
    assert rig.state("b") is State.STOPPING
    assert rig.state("c") is State.UNLOADED, "80 do not fit beside the 60 of those who stop"


def test_a_model_in_use_drains_after_the_swap_wait_and_what_still_runs_is_parked() -> None:
    rig = Rig(entry("a"), entry("b"), models_max=1, max_swap_wait=5.0, drain_timeout=30.0)
    long = rig.ask("a")
    child = rig.up("a")
    rig.post(events.RequestAnswered(long))
    waiter = rig.ask("b")
    late = rig.ask("a")
    assert rig.dispatched() == [late], "until the swap wait is over the model serves on"
    rig.wait(5.0)
    assert rig.state("a") is State.DRAINING
    rig.end(late, child)
    too_late = rig.ask("a")
    assert rig.dispatched() == []
    rig.wait(30.0)
    assert rig.one(effects.ParkWork).request == long
    rig.end(long, child, parked=True)
    assert rig.one(effects.Stop).reason == "evicted"
    rig.exit(child)
    assert rig.state("b") is State.SPAWNING
    other = rig.up("b")
    assert rig.dispatched() == [waiter]
    rig.end(waiter, other)
    rig.exit(other)
    rig.up("a")
    assert rig.dispatched() == [long, too_late]


def test_a_turn_is_served_whole_before_the_swap() -> None:
    rig = Rig(entry("a", slots=1), entry("b"), models_max=1, in_flight_factor=1)
    batch = [rig.ask("a") for _ in range(3)]
    rig.ask("b")
    child = rig.up("a")
    late = rig.ask("a")
    rig.wait(6.0)
    assert rig.state("a") is State.DRAINING
    for done, following in zip(batch, [*batch[1:], None], strict=True):
        rig.end(done, child)
        assert rig.dispatched() == ([following] if following else [])
    assert rig.one(effects.Stop).child == child
    assert late not in [effect.request for effect in rig.all if isinstance(effect, effects.Dispatch)]


def test_a_drain_is_called_off_when_the_room_is_not_wanted_any_more() -> None:
    rig = Rig(entry("a"), entry("b"), models_max=1)
    rig.ask("a")
    rig.up("a")
    waiter = rig.ask("b")
    rig.wait(6.0)
    held_back = rig.ask("a")
    assert rig.state("a") is State.DRAINING
    rig.post(events.RequestLeft(waiter))
    assert rig.state("a") is State.READY
    assert rig.dispatched() == [held_back]


def test_the_swap_wait_by_itself_is_three_times_both_loads_within_its_bounds() -> None:
    rig = Rig(entry("a"), entry("b"), models_max=1, max_swap_wait=None)
    for key in ("a", "b"):  # each takes four seconds to load
        request = rig.ask(key)
        if key == "b":
            rig.exit(rig.child("a"))
        rig.end(request, rig.up(key, seconds=4.0))
    rig.ask("b")
    rig.ask("a")
    rig.wait(23.9)
    assert rig.state("b") is State.READY
    rig.wait(0.2)
    assert rig.state("b") is State.DRAINING


def test_minimum_residency_binds_while_the_model_is_used() -> None:
    rig = Rig(entry("a"), entry("b"), models_max=1, min_residency=60.0)
    running = rig.ask("a")
    child = rig.up("a")
    rig.ask("b")
    rig.wait(50.0)
    assert rig.state("a") is State.READY
    rig.end(running, child)
    assert rig.one(effects.Stop).child == child


def test_a_stream_of_higher_priority_cannot_take_the_room_back_that_was_drained_for_another() -> None:
    rig = Rig(entry("a", priority=9), entry("b"), models_max=1)
    first = rig.ask("a")
    child = rig.up("a")
    waiter = rig.ask("b")
    rig.wait(6.0)
    rig.ask("a")
    rig.end(first, child)
    rig.exit(child)
    assert rig.state("b") is State.SPAWNING
    rig.up("b")
    assert rig.dispatched() == [waiter]


def test_only_as_many_as_needed_are_evicted_and_shared_files_count_once() -> None:
    shared = ("weights", 40)
    rig = Rig(
        entry("a", needs=host(10, shared)),
        entry("b", needs=host(10, shared)),
        entry("c", needs=host(30)),
        entry("d", needs=host(25)),
        budget=(("host", 100),),
    )
    for key in ("a", "b", "c"):  # 60, 70, 100: the second costs its private bytes only
        request = rig.ask(key)
        rig.post(events.MemoryRead((("host", 1000),)))
        rig.end(request, rig.up(key))
    rig.ask("d")
    stopped = {stop.child for stop in rig.seen(effects.Stop)}
    assert stopped == {rig.child("a"), rig.child("b")}, "neither of them alone would free the shared file"


def test_a_need_that_fits_no_budget_is_refused_with_the_numbers() -> None:
    rig = Rig(entry("a", needs=host(3 << 30)), entry("b", needs=host(1 << 30)), budget=(("host", 2 << 30),))
    refused = rig.ask("a")
    assert rig.ended() == {refused: "load_failed"}
    assert "3.00 GiB needed on host, the budget is 2.00 GiB" in rig.error(refused)
    rig.none(effects.Spawn)
    rig.ask("b")
    assert rig.one(effects.Spawn).model == "b"


def test_a_smaller_model_may_pass_one_that_waits_for_room_it_cannot_use() -> None:
    rig = Rig(
        entry("a", needs=host(60)),
        entry("b", needs=host(70)),
        entry("c", needs=host(20)),
        budget=(("host", 100),),
    )
    rig.ask("a")
    rig.post(events.MemoryRead((("host", 1000),)))
    rig.up("a")
    rig.ask("b")
    rig.ask("c")
    assert rig.state("c") is State.SPAWNING, "it fits beside a now, and beside b later"
    assert rig.state("b") is State.UNLOADED


def test_a_reading_vetoes_a_load_until_enough_idle_models_have_gone() -> None:
    rig = Rig(entry("a", needs=host(30)), entry("b", needs=host(30)), budget=(("host", 100),))
    request = rig.ask("a")
    rig.post(events.MemoryRead((("host", 1000),)))
    child = rig.up("a")
    rig.end(request, child)
    rig.ask("b")
    rig.connect(rig.child("b"))
    rig.none(effects.SendLoad)
    rig.post(events.MemoryRead((("host", 10),)))
    assert rig.one(effects.Stop).child == child
    rig.exit(child)
    assert rig.one(effects.ReadMemory)
    rig.post(events.MemoryRead((("host", 40),)))
    assert rig.one(effects.SendLoad).model == "b"


def test_a_reading_that_does_not_come_vetoes_nothing() -> None:
    rig = Rig(entry("a", needs=host(30)), budget=(("host", 100),))
    rig.ask("a")
    rig.connect(rig.child("a"))
    rig.wait(3.0)
    assert rig.one(effects.SendLoad).model == "a"


@pytest.mark.parametrize("busy", [False, True])
def test_a_load_that_failed_for_lack_of_memory_evicts_and_retries_once(busy: bool) -> None:
    rig = Rig(entry("a"), entry("b"))
    running = rig.ask("a")
    child = rig.up("a")
    if not busy:
        rig.end(running, child)
    waiter = rig.ask("b")
    rig.connect(rig.child("b"))
    rig.exit(rig.child("b"), 67)
    if busy:
        rig.none(effects.Stop, effects.EndRequest)
        rig.end(running, child)
    assert rig.one(effects.Stop).reason == "evicted"
    assert rig.state("b") is State.BACKOFF
    rig.exit(child)
    assert rig.state("b") is State.SPAWNING
    rig.connect(rig.child("b"))
    rig.exit(rig.child("b"), 67)
    assert rig.ended() == {waiter: "load_failed"}
    assert rig.state("b") is State.FAILED


def test_what_is_pinned_makes_others_impossible_only_until_it_is_told_to_leave() -> None:
    rig = Rig(entry("a", pin=True), entry("b"), models_max=1)
    child = rig.serve("a")
    refused = rig.ask("b")
    assert rig.ended() == {refused: "load_failed"}
    assert "a pinned, and models-max is 1" in rig.error(refused)
    rig.post(events.UnloadAsked("a"))
    waiter = rig.ask("b")
    assert rig.ended() == {}
    rig.exit(child)
    rig.up("b")
    assert rig.dispatched() == [waiter]

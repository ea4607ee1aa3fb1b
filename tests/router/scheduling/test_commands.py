"""Load, unload, pin, reload, stop."""

from __future__ import annotations

import msgspec

from protocol.errors import ErrorKind
from router.scheduling import effects, events
from router.scheduling.events import ExitReason
from router.scheduling.states import State
from tests.router.scheduling.rig import Rig, entry


def test_a_load_that_was_asked_for_counts_like_a_request_until_it_is_ready() -> None:
    rig = Rig(entry("a"), entry("b"), models_max=1)
    rig.post(events.LoadAsked("a"))
    rig.ask("b")
    rig.none(effects.Stop)
    rig.up("a")
    assert rig.one(effects.Stop).reason == "evicted"


def test_unload_drains_what_runs_and_ends_who_waits() -> None:
    rig = Rig(entry("a", slots=1), in_flight_factor=1)
    running, waiting = rig.ask("a"), rig.ask("a")
    child = rig.up("a")
    rig.post(events.UnloadAsked("a"))
    assert rig.ended() == {waiting: ErrorKind.UNAVAILABLE}
    assert rig.state("a") is State.DRAINING
    rig.wait(40.0)
    rig.none(effects.ParkWork)
    rig.end(running, child)
    assert rig.one(effects.Stop).reason == ExitReason.ASKED
    later = rig.ask("a")
    rig.exit(child)
    rig.up("a")
    assert rig.dispatched() == [later]
    assert rig.view("a").exit is not None


def test_a_forced_unload_cancels_what_runs() -> None:
    rig = Rig(entry("a"))
    running = rig.ask("a")
    child = rig.up("a")
    rig.post(events.UnloadAsked("a", force=True))
    assert rig.one(effects.CancelWork).request == running
    assert rig.ended() == {running: ErrorKind.UNAVAILABLE}
    assert rig.one(effects.Stop).child == child
    rig.exit(child)
    assert rig.state("a") is State.UNLOADED


def test_unload_aborts_a_load_at_once() -> None:
    rig = Rig(entry("a"))
    waiting = rig.ask("a")
    rig.connect(rig.child("a"))
    rig.post(events.UnloadAsked("a"))
    assert rig.one(effects.Stop).reason == ExitReason.ASKED
    assert rig.ended() == {waiting: ErrorKind.UNAVAILABLE}


def test_a_name_that_is_unloaded_leaves_the_worker_to_the_other_names_that_use_it() -> None:
    rig = Rig(msgspec.structs.replace(entry("key"), names=("sober", "wild")))
    rig.end(rig.ask("key", name="sober"), rig.up("key"))
    rig.end(rig.ask("key", name="wild"), rig.child("key"))
    rig.post(events.UnloadAsked("key", name="sober"))
    rig.none(effects.Stop)
    rig.post(events.UnloadAsked("key", name="wild"))
    assert rig.one(effects.Stop).reason == ExitReason.ASKED


def test_a_load_asked_for_ends_a_cooldown() -> None:
    rig = Rig(entry("a"), cooldown_failures=1)
    rig.ask("a")
    rig.exit(rig.child("a"), -6)
    assert rig.state("a") is State.FAILED
    rig.post(events.LoadAsked("a"))
    assert rig.state("a") is State.SPAWNING


def test_reload_keeps_what_is_unchanged_and_drains_what_vanished() -> None:
    rig = Rig(entry("a"), entry("b"), entry("c"))
    kept, gone = rig.ask("a"), rig.ask("b")
    rig.up("a")
    child = rig.up("b")
    rig.post(events.ModelsChanged((entry("a"), entry("d")), rig.policy))
    rig.none(effects.Stop)
    assert rig.state("a") is State.READY
    assert rig.state("b") is State.DRAINING
    assert rig.scheduler.model("c") is None
    assert rig.state("d") is State.UNLOADED
    refused = rig.ask("b")
    assert rig.ended() == {refused: ErrorKind.NOT_FOUND}
    rig.end(gone, child)
    rig.exit(child)
    assert rig.scheduler.model("b") is None
    rig.end(kept, rig.child("a"))
    assert rig.state("a") is State.READY


def test_what_vanished_and_still_runs_after_the_drain_is_cancelled() -> None:
    rig = Rig(entry("a"), drain_timeout=30.0)
    running = rig.ask("a")
    child = rig.up("a")
    rig.post(events.ModelsChanged((), rig.policy))
    rig.wait(30.0)
    assert rig.ended() == {running: ErrorKind.UNAVAILABLE}
    rig.end(running, child)
    assert rig.one(effects.Stop).child == child


def test_a_model_that_comes_back_while_it_drains_goes_on() -> None:
    rig = Rig(entry("a"))
    rig.ask("a")
    rig.up("a")
    rig.post(events.ModelsChanged((), rig.policy))
    rig.post(events.ModelsChanged((entry("a"),), rig.policy))
    assert rig.state("a") is State.READY


def test_a_worker_to_be_replaced_drains_and_its_model_is_loaded_again() -> None:
    rig = Rig(entry("a"))
    running = rig.ask("a")
    child = rig.up("a")
    rig.post(events.ModelsChanged((entry("a"),), rig.policy, restart=("a",)))
    rig.end(running, child)
    rig.exit(child)
    assert rig.one(effects.Spawn).model == "a"


def test_models_to_load_at_start_come_behind_requests_and_evict_nobody() -> None:
    rig = Rig(entry("a", load_on_startup=True), entry("b", load_on_startup=True), models_max=1)
    assert rig.state("a") is State.SPAWNING
    rig.up("a")
    rig.none(effects.Stop)
    assert rig.state("b") is State.UNLOADED
    assert rig.scheduler.queue() == []


def test_a_model_at_home_returns_when_nothing_runs_or_waits() -> None:
    rig = Rig(entry("guest"), entry("host", home=True), models_max=1)
    assert rig.state("host") is State.SPAWNING
    child = rig.up("host")
    request = rig.ask("guest")
    rig.exit(child)
    guest = rig.up("guest")
    rig.end(request, guest)
    rig.exit(guest)
    assert rig.state("host") is State.SPAWNING


def test_a_worn_worker_is_replaced_between_requests() -> None:
    rig = Rig(entry("a", recycle_after=2, slots=1), in_flight_factor=1)
    asked = [rig.ask("a") for _ in range(3)]
    child = rig.up("a")
    rig.end(asked[0], child)
    rig.end(asked[1], child)
    assert rig.one(effects.Stop).child == child
    rig.exit(child)
    rig.up("a")
    assert rig.dispatched() == [asked[2]]


def test_stopping_ends_who_waits_lets_what_runs_end_and_cancels_it_at_the_deadline() -> None:
    rig = Rig(entry("a", slots=1), entry("b"), in_flight_factor=1, spare_workers=1)
    running, waiting = rig.ask("a"), rig.ask("a")
    child = rig.up("a")
    idle = rig.serve("b")
    rig.post(events.StopAsked(rig.now + 20.0))
    assert rig.ended() == {waiting: ErrorKind.UNAVAILABLE}
    assert idle in [stop.child for stop in rig.seen(effects.Stop)]
    assert child not in [stop.child for stop in rig.seen(effects.Stop)]
    refused = rig.ask("b")
    assert rig.ended() == {refused: ErrorKind.UNAVAILABLE}
    rig.wait(20.0)
    assert rig.ended() == {running: ErrorKind.UNAVAILABLE}
    assert rig.one(effects.Stop) == effects.Stop(child, ExitReason.ROUTER_STOPPING, 10.0)
    assert not rig.scheduler.stopped
    for living in {stop.child for stop in rig.all if isinstance(stop, effects.Stop)}:
        rig.exit(living)
    assert rig.scheduler.stopped


def test_decisions_are_kept_with_their_reasons() -> None:
    rig = Rig(entry("a"), entry("b"), models_max=1)
    rig.serve("a")
    rig.ask("b")
    kept = [(decision.model, decision.decision, decision.reason) for decision in rig.scheduler.decisions()]
    assert ("a", "load", "1 waiting") in kept
    assert kept[-1] == ("a", "stop", "evicted for b")

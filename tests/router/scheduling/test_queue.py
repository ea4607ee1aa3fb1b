"""Loading on demand, coalescing, order, leases, limits and leaving."""

from __future__ import annotations

from protocol.errors import ErrorKind
from router.scheduling import effects, events
from router.scheduling.effects import Phase
from router.scheduling.states import State
from tests.router.scheduling.rig import Rig, entry


def test_a_request_loads_its_model_and_gets_its_lease_in_the_same_step_as_ready() -> None:
    rig = Rig(entry("a"))
    request = rig.ask("a")
    assert rig.one(effects.Spawn).model == "a"
    rig.connect(rig.child("a"))
    assert rig.one(effects.SendLoad).model == "a"
    rig.up("a")
    assert rig.dispatched() == [request]
    assert rig.view("a").running == 1


def test_waiters_of_one_model_share_one_load_and_keep_their_order() -> None:
    rig = Rig(entry("a", slots=8))
    asked = [rig.ask("a") for _ in range(5)]
    rig.up("a")
    assert rig.dispatched() == asked
    assert len([effect for effect in rig.all if isinstance(effect, effects.SendLoad)]) == 1


def test_keys_are_served_first_come_first_served() -> None:
    rig = Rig(entry("a"), entry("b"), entry("c"), models_max=1)
    first = rig.ask("a")
    rig.ask("b"), rig.ask("c"), rig.ask("b")
    child = rig.up("a")
    assert [queued.model for queued in rig.scheduler.queue()] == ["b", "c"]
    rig.end(first, child)
    assert rig.one(effects.Stop).child == child
    rig.exit(child)
    assert rig.state("b") is State.SPAWNING
    assert rig.state("c") is State.UNLOADED


def test_priority_goes_before_arrival_between_keys_and_within_one() -> None:
    rig = Rig(entry("a"), entry("b"), entry("c", priority=3), models_max=1)
    rig.ask("a")
    rig.up("a")
    plain, urgent = rig.ask("b"), rig.ask("b", priority=1)
    rig.ask("c")
    assert [queued.model for queued in rig.scheduler.queue()] == ["c", "b"]
    assert [view.request for view in rig.scheduler.waiting() if view.model == "b"] == [urgent, plain]


def test_no_more_than_twice_the_slots_are_sent_to_a_worker() -> None:
    rig = Rig(entry("a", slots=2))
    asked = [rig.ask("a") for _ in range(6)]
    child = rig.up("a")
    assert rig.dispatched() == asked[:4]
    rig.end(asked[1], child)
    assert rig.dispatched() == [asked[4]]
    assert rig.scheduler.waiting()[0].blocked.startswith("4 requests run")


def test_work_without_need_of_weights_does_not_wait_for_slots() -> None:
    rig = Rig(entry("a", slots=1))
    for _ in range(3):
        rig.ask("a")
    rig.up("a")
    light = rig.ask("a", needs_weights=False)
    assert rig.dispatched() == [light]


def test_a_waiter_that_leaves_costs_nobody_anything() -> None:
    rig = Rig(entry("a"), entry("b"), models_max=1)
    rig.serve("a")
    busy = rig.ask("a")
    waiter = rig.ask("b")
    rig.post(events.RequestLeft(waiter))
    rig.end(busy, rig.child("a"))
    rig.none(effects.Stop)
    assert rig.state("a") is State.READY
    assert rig.scheduler.queue() == []


def test_a_load_whose_last_waiter_left_finishes_unless_its_room_is_wanted() -> None:
    rig = Rig(entry("a"), entry("b"), models_max=1)
    rig.post(events.RequestLeft(rig.ask("a")))
    assert rig.state("a") is State.SPAWNING
    rig.ask("b")
    assert rig.one(effects.Stop).reason == "evicted"
    again = Rig(entry("a"), models_max=1)
    again.post(events.RequestLeft(again.ask("a")))
    again.up("a")
    assert again.state("a") is State.READY


def test_a_client_that_leaves_while_running_is_cancelled_and_holds_its_place_until_the_worker_lets_go() -> None:
    rig = Rig(entry("a", slots=1), in_flight_factor=1)
    first, second = rig.ask("a"), rig.ask("a")
    child = rig.up("a")
    rig.post(events.RequestLeft(first))
    assert rig.one(effects.CancelWork).request == first
    assert rig.dispatched() == []
    rig.end(first, child)
    assert rig.dispatched() == [second]


def test_the_line_has_a_limit_and_says_when_to_come_again() -> None:
    rig = Rig(entry("a", slots=1, queue_limit=2), in_flight_factor=1)
    for _ in range(3):
        rig.ask("a")
    rig.up("a")
    refused = rig.ask("a")
    assert rig.dispatched() == []
    error = rig.one(effects.EndRequest).error if rig.ended() else None
    assert error is None, "two wait, one runs"
    refused = rig.ask("a")
    error = rig.one(effects.EndRequest).error
    assert rig.ended() == {refused: ErrorKind.OVERLOADED}
    assert error.retry_after >= 1.0


def test_a_request_waits_no_longer_than_the_wait_limit() -> None:
    rig = Rig(entry("a", wait_limit=3.0), entry("b"), models_max=1)
    rig.ask("b")
    rig.up("b")
    waiter = rig.ask("a")
    rig.wait(2.9)
    assert rig.ended() == {}
    rig.wait(0.2)
    assert rig.ended() == {waiter: ErrorKind.UNAVAILABLE}
    assert rig.one(effects.EndRequest).error.retry_after > 0
    assert "b is in use" in rig.error(waiter)


def test_a_deadline_ends_waiting_and_running_requests() -> None:
    rig = Rig(entry("a", slots=1), in_flight_factor=1)
    running, waiting = rig.ask("a", deadline=rig.now + 5.0), rig.ask("a", deadline=rig.now + 6.0)
    child = rig.up("a")
    rig.wait(5.5)
    assert rig.ended() == {running: ErrorKind.DEADLINE}
    assert rig.one(effects.CancelWork).child == child
    rig.wait(1.0)
    assert rig.ended() == {waiting: ErrorKind.DEADLINE}


def test_an_unknown_model_and_one_that_may_not_be_loaded_are_refused() -> None:
    rig = Rig(entry("a"))
    assert rig.ended() == {}
    unknown = rig.ask("nobody")
    assert rig.ended() == {unknown: ErrorKind.NOT_FOUND}
    unloaded = rig.ask("a", autoload=False)
    assert rig.ended() == {unloaded: ErrorKind.INVALID_REQUEST}
    rig.serve("a")
    served = rig.ask("a", autoload=False)
    assert rig.dispatched() == [served]


def test_clients_hear_where_they_stand_and_how_far_the_load_is() -> None:
    rig = Rig(entry("a"), entry("b"), models_max=1)
    rig.ask("a")
    rig.up("a")
    first = rig.ask("b")
    assert rig.one(effects.Notify) == effects.Notify(first, Phase.QUEUED, 1)
    second = rig.ask("b")
    assert rig.one(effects.Notify) == effects.Notify(second, Phase.QUEUED, 2)
    rig.post(events.RequestLeft(first))
    rig.wait(1.1)
    assert rig.one(effects.Notify) == effects.Notify(second, Phase.QUEUED, 1)


def test_positions_count_the_models_ahead_while_room_is_waited_for_and_only_the_own_line_afterwards() -> None:
    rig = Rig(entry("a"), entry("b"), entry("c", slots=1), models_max=1, in_flight_factor=1)
    first = rig.ask("a")
    child = rig.up("a")
    ahead = rig.ask("b")
    rig.ask("c")
    assert rig.one(effects.Notify).position == 2
    rig.post(events.RequestLeft(ahead))
    rig.end(first, child)
    rig.exit(child)
    rig.up("c")
    rig.ask("c")
    assert rig.one(effects.Notify).position == 1


def test_a_request_that_comes_after_its_deadline_is_refused() -> None:
    rig = Rig(entry("a"))
    late = rig.ask("a", deadline=rig.now - 1.0)
    assert rig.ended() == {late: ErrorKind.DEADLINE}
    rig.none(effects.Spawn)

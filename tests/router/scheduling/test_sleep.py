"""Sleep and wakeup: only the router decides, nothing is lost in between, and waking is admitted like loading."""

from __future__ import annotations

from protocol.status import SlotStatus, WorkerState
from router.scheduling import effects, events
from router.scheduling.events import Child
from router.scheduling.states import State
from tests.router.scheduling.rig import Rig, entry, host


def asleep(**options: object) -> tuple[Rig, Child]:
    rig = Rig(entry("a", sleep_idle=10.0, **options), entry("b"), models_max=1)
    child = rig.serve("a")
    rig.wait(10.0)
    assert rig.one(effects.SendSleep).child == child
    rig.report(child, WorkerState.SLEEPING, answers=1)
    assert rig.state("a") is State.SLEEPING
    return rig, child


def test_an_idle_model_sleeps_after_its_time_and_not_while_it_is_used() -> None:
    rig = Rig(entry("a", sleep_idle=10.0))
    request = rig.ask("a")
    child = rig.up("a")
    rig.wait(40.0)
    rig.none(effects.SendSleep)
    rig.end(request, child)
    rig.wait(9.9)
    rig.none(effects.SendSleep)
    rig.wait(0.2)
    assert rig.one(effects.SendSleep).child == child
    assert rig.state("a") is State.FALLING_ASLEEP


def test_requests_wait_while_it_falls_asleep_and_wake_it_afterwards() -> None:
    rig = Rig(entry("a", sleep_idle=10.0))
    child = rig.serve("a")
    rig.wait(10.0)
    request = rig.ask("a")
    assert rig.dispatched() == []
    rig.report(child, WorkerState.SLEEPING)
    assert rig.one(effects.SendWakeup).child == child
    rig.report(child, WorkerState.WAKING)
    rig.report(child, WorkerState.READY)
    assert rig.dispatched() == [request]


def test_a_declined_sleep_serves_who_waited() -> None:
    rig = Rig(entry("a", sleep_idle=10.0))
    child = rig.serve("a")
    rig.wait(10.0)
    request = rig.ask("a")
    rig.report(child, WorkerState.READY)
    assert rig.dispatched() == [request]


def test_memory_stays_reserved_until_the_worker_says_that_it_sleeps() -> None:
    rig = Rig(entry("a", sleep_idle=10.0), entry("b"), models_max=1)
    child = rig.serve("a")
    rig.wait(10.0)
    rig.ask("b")
    rig.none(effects.Spawn)
    rig.report(child, WorkerState.SLEEPING)
    assert rig.one(effects.Spawn).model == "b"


def test_waking_passes_the_same_admission_as_loading() -> None:
    rig, child = asleep()
    other_request = rig.ask("b")
    other = rig.up("b")
    request = rig.ask("a")
    rig.none(effects.SendWakeup)
    rig.end(other_request, other)
    assert rig.one(effects.Stop).child == other
    rig.exit(other)
    assert rig.one(effects.SendWakeup).child == child
    rig.report(child, WorkerState.READY)
    assert rig.dispatched() == [request]


def test_work_that_needs_no_weights_is_done_asleep() -> None:
    rig, child = asleep()
    request = rig.ask("a", needs_weights=False)
    assert rig.one(effects.Dispatch).child == child
    rig.none(effects.SendWakeup)
    rig.end(request, child)
    assert rig.state("a") is State.SLEEPING


def test_a_ready_report_older_than_sleep_does_no_harm() -> None:
    """It is taken at its word; the work that it lets through wakes the worker, and the memory stays reserved."""
    rig = Rig(entry("a", sleep_idle=10.0), entry("b"), models_max=1)
    child = rig.serve("a")
    rig.wait(10.0)
    request = rig.ask("a")
    rig.report(child, WorkerState.READY)
    assert rig.dispatched() == [request]
    rig.report(child, WorkerState.SLEEPING)
    assert rig.state("a") is State.WAKING
    rig.ask("b")
    rig.none(effects.Spawn)
    rig.report(child, WorkerState.WAKING)
    rig.report(child, WorkerState.READY, held=(request,))
    assert rig.view("a").running == 1


def test_a_wakeup_without_effect_is_repeated_once_a_later_ping_proves_it() -> None:
    rig, child = asleep()
    rig.ask("a")
    rig.report(child, WorkerState.SLEEPING)
    rig.none(effects.SendWakeup)
    rig.wait(5.1)
    assert rig.one(effects.SendQuery).child == child
    rig.report(child, WorkerState.SLEEPING, answers=1)
    assert rig.one(effects.SendWakeup).child == child


def test_a_ping_sent_before_a_wakeup_says_nothing_of_it() -> None:
    """Its answer comes while the worker lost what overtook `Sleep`, so that a second ping follows the first at once."""
    rig = Rig(entry("a", sleep_idle=10.0))
    child = rig.serve("a")
    rig.wait(10.0)
    rig.ask("a")
    rig.report(child, WorkerState.READY, answers=1)  # older than `Sleep`
    rig.report(child, WorkerState.SLEEPING)
    rig.wait(5.1)
    rig.one(effects.SendQuery)
    rig.report(child, WorkerState.SLEEPING, answers=1)
    assert rig.one(effects.SendQuery).child == child
    assert rig.one(effects.SendWakeup).child == child
    rig.wait(0.01)
    rig.report(child, WorkerState.SLEEPING, answers=2)
    assert len(rig.dispatched()) == 1, "what two answers did not list is sent again"
    rig.none(effects.SendWakeup)


def test_a_wakeup_that_is_never_answered_replaces_the_worker_and_sends_the_requests_again() -> None:
    rig, child = asleep()
    request = rig.ask("a")
    rig.wait(60.0)
    assert rig.one(effects.Kill).child == child
    rig.exit(child, -9)
    assert rig.state("a") is State.SPAWNING
    rig.up("a")
    assert rig.dispatched() == [request]


def test_a_worker_found_awake_is_believed() -> None:
    rig, child = asleep()
    rig.report(child, WorkerState.WAKING)
    assert rig.view("a").resident
    rig.report(child, WorkerState.READY)
    assert rig.state("a") is State.READY


def test_a_sleeping_model_occupies_nothing_and_ends_after_its_own_time() -> None:
    rig = Rig(
        entry("a", sleep_idle=1.0, unload_idle=30.0, needs=host(80)),
        entry("b", needs=host(80)),
        budget=(("host", 100),),
    )
    request = rig.ask("a")
    rig.wait(3.0)
    child = rig.up("a")
    rig.end(request, child)
    rig.wait(1.0)
    rig.report(child, WorkerState.SLEEPING)
    rig.ask("b")
    assert rig.state("b") is State.SPAWNING
    rig.wait(30.0)
    assert rig.seen(effects.Stop)[0].reason == "idle"
    assert rig.state("a") is State.STOPPING


def test_looking_does_not_count_as_use() -> None:
    rig = Rig(entry("a", sleep_idle=10.0))
    child = rig.serve("a")
    for _ in range(4):
        rig.wait(2.4)
        rig.scheduler.models(), rig.scheduler.queue(), rig.scheduler.waiting()
        rig.report(child, WorkerState.READY, slots=(SlotStatus(0, "idle"),))
    rig.wait(0.5)
    assert rig.one(effects.SendSleep).child == child


def test_keep_alive_of_the_last_request_goes_before_the_configuration_and_pin_before_both() -> None:
    rig = Rig(entry("a", unload_idle=5.0))
    rig.end(rig.ask("a", keep_alive=-1.0), rig.up("a"))
    rig.wait(50.0)
    assert rig.state("a") is State.READY
    rig.post(events.PinAsked("a", True))
    rig.end(rig.ask("a", keep_alive=0.0), rig.child("a"))
    assert rig.state("a") is State.READY
    rig.post(events.PinAsked("a", False))
    assert rig.one(effects.Stop).reason == "idle"


def test_a_sleeping_model_that_is_being_stopped_still_takes_no_room() -> None:
    rig, child = asleep()
    rig.post(events.UnloadAsked("a"))
    assert rig.one(effects.Stop).child == child
    assert not rig.view("a").resident
    rig.ask("b")
    assert rig.state("b") is State.SPAWNING

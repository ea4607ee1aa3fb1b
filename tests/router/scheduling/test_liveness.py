"""Slow is not wedged: a worker is replaced when a counter stands still while there is work for it."""

from __future__ import annotations

from protocol.errors import ErrorKind
from protocol.status import SlotStatus, WorkerState
from router.scheduling import effects, events
from router.scheduling.events import Child
from router.scheduling.liveness import Sign, Watch
from router.scheduling.states import State
from tests.router.scheduling.rig import Rig, entry


def decoding(request: int) -> tuple[SlotStatus, ...]:
    return (SlotStatus(0, "decode", request), SlotStatus(1, "idle"))


def answer_pings(rig: Rig, child: Child, seconds: float, **status: object) -> bool:
    """Let time pass and answer every ping with this status; False once the worker was killed."""
    end = rig.now + seconds
    while rig.now < end:
        rig.wait(0.5)
        if rig.seen(effects.Kill):
            return False
        if rig.seen(effects.SendQuery):
            rig.report(child, WorkerState.READY, answers=1, **status)
    return True


def test_a_silent_worker_is_pinged_and_then_replaced() -> None:
    rig = Rig(entry("a"), query_interval=5.0, wedge_after=60.0)
    request = rig.ask("a")
    child = rig.up("a")
    rig.wait(5.0)
    assert rig.one(effects.SendQuery).child == child
    rig.wait(59.9)
    rig.none(effects.Kill)
    rig.wait(0.2)
    assert rig.one(effects.Kill) == effects.Kill(child, events.ExitReason.WEDGED, dump=True)
    rig.exit(child, -9)
    report = rig.view("a").exit
    assert report is not None
    assert report.reason == "wedged"
    assert "does not answer" in report.message
    rig.up("a")
    assert rig.dispatched() == [request]


def test_a_decode_step_that_stands_still_is_wedged_although_pings_are_answered() -> None:
    rig = Rig(entry("a"))
    request = rig.ask("a")
    child = rig.up("a")
    assert not answer_pings(rig, child, 90.0, step=7, slots=decoding(request), held=(request,))
    assert "decode step stands still" in rig.view("a").reason


def test_preparation_that_stands_still_is_wedged() -> None:
    rig = Rig(entry("a"))
    request = rig.ask("a")
    child = rig.up("a")
    idle = (SlotStatus(0, "idle"),)
    assert not answer_pings(rig, child, 90.0, preparation=3, slots=idle, held=(request,))
    assert "preparation" in rig.view("a").reason


def test_an_idle_worker_may_stand_still_for_ever() -> None:
    rig = Rig(entry("a"))
    child = rig.serve("a")
    assert answer_pings(rig, child, 300.0, step=7, slots=(SlotStatus(0, "idle"),))
    assert rig.state("a") is State.READY


def test_a_slow_step_teaches_patience() -> None:
    rig = Rig(entry("a"))
    request = rig.ask("a")
    child = rig.up("a")
    for step in range(2):
        assert answer_pings(rig, child, 30.0, step=step, slots=decoding(request), held=(request,))
    rig.report(child, WorkerState.READY, step=9, slots=decoding(request), held=(request,))
    assert answer_pings(rig, child, 200.0, step=9, slots=decoding(request), held=(request,)), "30 s were seen: 300 are"
    assert not answer_pings(rig, child, 200.0, step=9, slots=decoding(request), held=(request,))


def test_a_load_may_take_as_long_as_it_makes_progress() -> None:
    rig = Rig(entry("a"))
    rig.ask("a")
    child = rig.child("a")
    rig.connect(child)
    for percent in range(10):
        rig.wait(40.0)
        rig.report(child, WorkerState.LOADING, progress=percent / 10, answers=1)
    rig.none(effects.Kill)
    for _ in range(10):  # the callback stands still, the process does not
        rig.wait(40.0)
        rig.none(effects.Kill)
        rig.post(events.ChildProgressed(child))
        rig.report(child, WorkerState.LOADING, progress=0.9, answers=1)
    assert rig.state("a") is State.LOADING


def test_a_load_without_progress_is_replaced() -> None:
    rig = Rig(entry("a"))
    rig.ask("a")
    child = rig.child("a")
    rig.connect(child)
    for _ in range(12):
        rig.report(child, WorkerState.LOADING, progress=0.3)
        rig.wait(5.5)
        if rig.seen(effects.Kill):
            break
    assert "no progress" in rig.view("a").reason


def test_a_process_that_never_says_hello_is_replaced() -> None:
    rig = Rig(entry("a"))
    rig.ask("a")
    child = rig.child("a")
    rig.wait(60.0)
    assert rig.one(effects.Kill).child == child


def test_a_request_that_two_later_answers_do_not_list_is_sent_again_once() -> None:
    rig = Rig(entry("a"))
    request = rig.ask("a")
    child = rig.up("a")
    rig.report(child, WorkerState.READY)
    assert rig.dispatched() == [], "a report that nothing asked for may be older than the request"

    def two_answers() -> None:
        rig.wait(5.0)
        assert rig.seen(effects.SendQuery)
        rig.report(child, WorkerState.READY, answers=1)
        assert rig.dispatched() == []
        rig.wait(0.1)
        rig.report(child, WorkerState.READY, answers=2)

    two_answers()
    assert rig.dispatched() == [request]
    two_answers()
    assert rig.ended() == {request: ErrorKind.INTERNAL}


def test_a_sign_counts_only_standstills_with_work() -> None:
    sign = Sign()
    assert sign.see(1, True, 0.0) == 0.0
    assert sign.see(1, True, 5.0) == 0.0
    assert sign.see(2, True, 7.0) == 7.0
    assert sign.see(2, False, 8.0) == 0.0
    assert sign.see(2, True, 100.0) == 0.0
    assert sign.see(3, True, 101.0) == 1.0


def test_the_limit_is_ten_times_the_longest_standstill_but_never_less_than_configured() -> None:
    watch = Watch(slowest={"decode": 9.0, "progress": 2.0}, heard=0.0)
    assert watch.limit("decode", 60.0) == 90.0
    assert watch.limit("progress", 60.0) == 60.0


def test_signs_of_life_do_not_pile_up_alarms() -> None:
    rig = Rig(entry("a"), query_interval=5.0, wedge_after=60.0)
    request = rig.ask("a")
    child = rig.up("a")
    for step in range(500):
        rig.wait(0.02)
        rig.report(child, WorkerState.READY, step=step, slots=decoding(request), held=(request,))
    before = len([effect for effect in rig.all if isinstance(effect, effects.SetTimer)])
    assert answer_pings(rig, child, 50.0, step=500, slots=decoding(request), held=(request,))
    after = len([effect for effect in rig.all if isinstance(effect, effects.SetTimer)])
    assert after - before < 60, "old signs of life wake the scheduler again and again"

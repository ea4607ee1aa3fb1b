"""Deaths: who is retried, who gets an error, when the next worker starts, and what is never tried again."""

from __future__ import annotations

from protocol.errors import ErrorKind
from router.scheduling import effects, events
from router.scheduling.events import ExitReason
from router.scheduling.states import State
from tests.router.scheduling.rig import Rig, entry, host


def test_requests_without_output_are_retried_once_and_the_others_get_an_error() -> None:
    rig = Rig(entry("a"))
    silent, answered, waiting = (rig.ask("a") for _ in range(3))
    child = rig.up("a")
    rig.post(events.RequestAnswered(answered))
    rig.exit(child, -11, ExitReason.SIGNAL, stderr=("GGML_ASSERT failed", ""))
    assert rig.ended() == {answered: ErrorKind.WORKER_DIED}
    assert rig.error(answered) == "the worker was ended by signal 11 (GGML_ASSERT failed)"
    report = rig.view("a").exit
    assert report is not None
    assert report.exit_code == -11
    rig.up("a")
    rig.post(events.RequestAnswered(silent))
    assert {silent, waiting} == {e.request for e in rig.all if isinstance(e, effects.Dispatch) and e.child != child}


def test_those_that_ran_at_a_crash_are_tried_one_at_a_time() -> None:
    rig = Rig(entry("a"))
    first, second = rig.ask("a"), rig.ask("a")
    rig.exit(rig.up("a"), -11)
    innocent = rig.ask("a")
    child = rig.up("a")
    assert rig.dispatched() == [first, innocent]
    rig.exit(child, -11)
    assert rig.ended() == {first: ErrorKind.WORKER_DIED}
    rig.up("a")
    assert rig.dispatched()[0] == second


def test_a_request_at_two_crashes_is_quarantined_and_those_crashes_do_not_count() -> None:
    rig = Rig(entry("a"))
    killer = rig.ask("a", digest="x")
    rig.exit(rig.up("a"), -11)
    assert rig.view("a").failures == 1
    rig.exit(rig.up("a"), -11)
    assert rig.ended() == {killer: ErrorKind.WORKER_DIED}
    assert rig.view("a").failures == 0
    again = rig.ask("a", digest="x")
    assert rig.ended() == {again: ErrorKind.WORKER_DIED}
    rig.none(effects.Spawn)
    rig.ask("a", digest="y")
    assert rig.one(effects.Spawn).model == "a"


def test_restarts_back_off_with_jitter_and_repeated_failure_opens_a_cooldown() -> None:
    rig = Rig(entry("a"), entry("b"), cooldown_failures=4, backoff_first=1.0, cooldown=300.0)
    rig.post(events.LoadAsked("a"))
    pauses = []
    for _ in range(4):
        rig.connect(rig.child("a"))
        rig.exit(rig.child("a"), -6)
        pauses.append(rig.view("a").retry_at - rig.now)
        if rig.state("a") is State.BACKOFF:
            rig.wait(pauses[-1])
    assert pauses[0] <= 0.0
    assert 0.75 <= pauses[1] <= 1.0
    assert 1.5 <= pauses[2] <= 2.0
    assert pauses[3] == 300.0
    view = rig.view("a")
    assert (view.state, view.failed, view.status) == (State.FAILED, True, "unloaded")
    assert "signal 6" in view.reason
    refused = rig.ask("a")
    assert rig.ended() == {refused: ErrorKind.LOAD_FAILED}
    assert rig.one(effects.EndRequest).error.retry_after == 300.0
    rig.serve("b")
    rig.wait(300.0)
    rig.ask("a")
    assert rig.state("a") is State.SPAWNING


def test_a_stable_run_forgets_the_failures() -> None:
    rig = Rig(entry("a"), stable_after=30.0)
    rig.post(events.LoadAsked("a"))
    rig.connect(rig.child("a"))
    rig.exit(rig.child("a"), -6)
    rig.up("a")
    assert rig.view("a").failures == 1
    rig.wait(30.0)
    assert rig.view("a").failures == 0


def test_a_request_waits_for_two_failed_loads_at_most() -> None:
    rig = Rig(entry("a"))
    request = rig.ask("a")
    rig.connect(rig.child("a"))
    rig.exit(rig.child("a"), -6)
    assert rig.ended() == {}
    rig.connect(rig.child("a"))
    rig.exit(rig.child("a"), -6)
    assert rig.ended() == {request: ErrorKind.LOAD_FAILED}


def test_a_file_that_cannot_be_loaded_fails_its_waiters_at_once_with_the_reason() -> None:
    rig = Rig(entry("a"))
    first, second = rig.ask("a"), rig.ask("a")
    rig.connect(rig.child("a"))
    rig.exit(rig.child("a"), 64, ExitReason.LOAD_ERROR, message="not a GGUF file")
    assert rig.ended() == {first: ErrorKind.LOAD_FAILED, second: ErrorKind.LOAD_FAILED}
    assert rig.error(first) == "not a GGUF file"
    assert rig.state("a") is State.FAILED
    rig.ask("a")
    assert rig.state("a") is State.SPAWNING, "the file may have been repaired"


def test_a_load_that_fails_each_time_opens_a_cooldown_too() -> None:
    rig = Rig(entry("a"), cooldown_failures=2, cooldown=300.0)
    for _ in range(2):
        rig.ask("a")
        rig.connect(rig.child("a"))
        rig.exit(rig.child("a"), 64, ExitReason.LOAD_ERROR, message="not a GGUF file", stderr=("E: not a GGUF file",))
    assert rig.one(effects.EndRequest).error.retry_after == 300.0
    assert rig.view("a").retry_at == rig.now + 300.0
    rig.wait(100.0)
    refused = rig.ask("a")
    assert rig.one(effects.EndRequest).error.retry_after == 200.0
    assert rig.error(refused).endswith("not a GGUF file"), "a line that repeats the message is left out"


def test_a_model_that_can_have_no_room_is_shown_as_failed_with_the_numbers() -> None:
    rig = Rig(entry("a", needs=host(200)), budget=(("host", 100),))
    rig.post(events.LoadAsked("a"))
    assert rig.state("a") is State.FAILED
    assert "200 B needed on host, the budget is 100 B" in rig.view("a").reason


def test_a_process_that_cannot_be_started_is_a_failure_like_any_other() -> None:
    rig = Rig(entry("a"))
    rig.ask("a")
    rig.post(events.SpawnFailed(rig.child("a"), "no such file"))
    assert rig.view("a").failures == 1
    assert rig.state("a") is State.SPAWNING


def test_a_stuck_worker_keeps_its_memory_charged_and_nobody_waits_for_it() -> None:
    rig = Rig(entry("a"), entry("b"))
    request = rig.ask("a")
    child = rig.up("a")
    rig.wait(65.0)
    assert rig.one(effects.Kill).child == child
    rig.post(events.ChildStuck(child))
    assert rig.state("a") is State.SPAWNING, "its request is sent to another worker"
    assert rig.child("a") != child
    rig.up("a")
    assert rig.dispatched() == [request]
    rig.exit(child, -9)
    assert rig.state("a") is State.READY


def test_late_words_of_a_dead_worker_change_nothing() -> None:
    rig = Rig(entry("a"))
    request = rig.ask("a")
    child = rig.up("a")
    rig.exit(child, -11)
    rig.end(request, child)
    rig.post(events.ChildConnected(child))
    assert rig.last == [] or all(isinstance(effect, effects.SetTimer) for effect in rig.last)
    rig.up("a")
    assert rig.dispatched() == [request]

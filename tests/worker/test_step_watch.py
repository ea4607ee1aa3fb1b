"""A step is ended early exactly when nobody wants its result."""

from __future__ import annotations

from protocol.control import Cancel, SetThreads, Shutdown
from worker.step_watch import StepWatch


class Switch:
    def __init__(self) -> None:
        self.thrown = False

    def throw(self) -> None:
        self.thrown = True

    def reset(self) -> None:
        self.thrown = False

    def was_thrown(self) -> bool:
        return self.thrown


def watch_with_switch() -> tuple[StepWatch, Switch]:
    watch, switch = StepWatch(), Switch()
    watch.guard(switch)
    return watch, switch


def test_the_last_cancel_of_a_step_ends_it() -> None:
    watch, switch = watch_with_switch()
    watch.begin(frozenset({1, 2}))
    watch.seen(Cancel(1))
    assert not switch.was_thrown()
    watch.seen(Cancel(2))
    assert switch.was_thrown()
    watch.end()
    watch.begin(frozenset({3}))
    assert not switch.was_thrown()


def test_others_tokens_are_not_lost() -> None:
    watch, switch = watch_with_switch()
    watch.begin(frozenset({1}))
    watch.seen(Cancel(9))
    watch.seen(SetThreads(1, 1))
    assert not switch.thrown


def test_between_steps_nothing_is_ended() -> None:
    watch, switch = watch_with_switch()
    watch.begin(frozenset({1}))
    watch.end()
    watch.seen(Cancel(1))
    assert not switch.thrown


def test_a_shutdown_ends_every_step_from_then_on() -> None:
    watch, switch = watch_with_switch()
    watch.begin(frozenset({1}))
    watch.seen(Shutdown())
    assert switch.thrown
    watch.end()
    watch.begin(frozenset({2}))
    assert switch.thrown


def test_a_shutdown_before_the_engine_is_there_counts() -> None:
    watch, switch = StepWatch(), Switch()
    watch.seen(Shutdown())
    watch.guard(switch)
    assert switch.thrown

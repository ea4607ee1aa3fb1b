"""A slice of the campaign of `make sim`, and seeds that once failed."""

from __future__ import annotations

import pytest

from tests.scenarios.campaign import live_through
from tests.scenarios.simulation import Simulation, random_plan

HISTORIES = 300


@pytest.mark.parametrize("first", range(0, HISTORIES, 100))
def test_every_invariant_holds_in_random_histories(first: int) -> None:
    handled, long, failures = live_through(range(first, first + 100))
    assert not failures, failures[0]
    assert long > 60, "the histories are meant to be long"
    assert handled > 100 * 200


@pytest.mark.parametrize(
    ("seed", "what"),
    [
        (3, "an alarm that was due when it was set fired for ever"),
        (15, "a sleeping model that was being stopped counted as resident"),
        (26, "a pinned model that was leaving made others impossible"),
        (263, "the end of a stuck worker removed the model that was configured anew in its place"),
        (2822, "two models whose parked work never ended took turns, and a third waited for ever"),
        (8604, "an answer to a ping from before a wakeup had the wakeup sent again"),
        (79, "a request for a failed model waited for room after the cooldown"),
    ],
)
def test_seeds_that_once_failed(seed: int, what: str) -> None:
    """Histories change with the simulation, so each of these faults has a test of its kind beside the policies, too."""
    Simulation(random_plan(seed), seed).run()


def test_a_history_is_repeatable() -> None:
    first, second = (Simulation(random_plan(7), 7).run() for _ in range(2))
    assert first.recorded == second.recorded
    assert first.handled == second.handled

"""Never more loads than a coalescing first-in-first-out queue, on random traces with room for one model."""

from __future__ import annotations

import random

import pytest

from router.scheduling.model import ModelEntry, Policy
from tests.scenarios import reference_fifo
from tests.scenarios.simulation import Plan, Simulation
from tests.scenarios.worker import Temper

UNHURRIED = 1e6


def trace(seed: int, max_swap_wait: float | None, drain_timeout: float) -> Plan:
    """A busy trace: two to four models, room for one, clients some of whom leave."""
    source = random.Random(f"trace {seed}")
    names = [f"m{index}" for index in range(source.randint(2, 4))]
    return Plan(
        models=tuple(ModelEntry(name, (name,), slots=source.randint(1, 4)) for name in names),
        policy=Policy(models_max=1, max_swap_wait=max_swap_wait, drain_timeout=drain_timeout),
        temper=Temper(load=source.choice([(0.1, 1.0), (1.0, 10.0)]), service=source.choice([(0.1, 3.0), (1.0, 10.0)])),
        interval=source.choice([0.2, 0.5, 1.5, 5.0]),
        leave=source.choice([0.0, 0.05, 0.3]),
        light=0.0,
    )


@pytest.mark.parametrize("max_swap_wait", [None, 0.5, 20.0])
def test_no_more_loads_than_the_reference_while_nothing_is_parked(max_swap_wait: float | None) -> None:
    ours, theirs = 0, 0
    for seed in range(20):
        simulation = Simulation(trace(seed, max_swap_wait, UNHURRIED), seed).run()
        reference = reference_fifo.loads(simulation.recorded)
        assert simulation.loads <= reference, f"seed {seed}: {simulation.loads} loads, {reference} would do"
        ours, theirs = ours + simulation.loads, theirs + reference
    assert 0 < ours < theirs


def test_with_the_default_limits_only_a_turn_that_was_cut_costs_a_load() -> None:
    """The reference waits for ever for what runs; we park it at the drain time-out, and it comes back once more."""
    cut = 0
    for seed in range(25):
        simulation = Simulation(trace(seed, None, Policy().drain_timeout), seed).run()
        allowed = reference_fifo.loads(simulation.recorded) + simulation.turns_cut
        assert simulation.loads <= allowed, f"seed {seed}: {simulation.loads} loads, {allowed} would do"
        cut += simulation.turns_cut
    assert cut < 25, "the traces are meant to be ordinary ones"


def test_the_reference_coalesces_and_keeps_the_order() -> None:
    arrivals = [("arrive", 1, "a"), ("arrive", 2, "b"), ("arrive", 3, "a"), ("arrive", 4, "b")]
    assert reference_fifo.loads([*arrivals, ("end", 1, "a"), ("end", 2, "b"), ("end", 4, "b"), ("end", 3, "a")]) == 3


def test_the_reference_loads_nothing_for_a_client_that_left() -> None:
    events = [("arrive", 1, "a"), ("arrive", 2, "b"), ("leave", 2, "b"), ("end", 1, "a"), ("arrive", 3, "a")]
    assert reference_fifo.loads(events) == 1

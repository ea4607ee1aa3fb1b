"""A day with agents, on the virtual clock: the acceptance scenarios of the model lifecycle."""

from __future__ import annotations

import pytest

from router.scheduling.model import ModelEntry, Policy
from tests.scenarios import reference_fifo
from tests.scenarios.simulation import Plan, Simulation
from tests.scenarios.worker import Temper

QUICK = Temper(load=(0.3, 1.5), service=(0.2, 6.0))


def models(count: int, **options: float) -> tuple[ModelEntry, ...]:
    return tuple(ModelEntry(f"m{index}", (f"m{index}",), **options) for index in range(count))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(10))
def test_twelve_clients_and_three_models_with_room_for_one(seed: int) -> None:
    """Every client that stayed gets its whole answer, with no more loads than the reference."""
    plan = Plan(models(3), Policy(models_max=1), QUICK, arrivals=200, clients=12, interval=0.05, leave=0.05, light=0.0)
    simulation = Simulation(plan, seed).run()
    outcomes = [client.outcome for client in simulation.clients.values()]
    assert len(outcomes) == 200
    assert set(outcomes) <= {"answered", "left"}
    assert simulation.turns_cut == 0
    assert simulation.loads <= reference_fifo.loads(simulation.recorded)


def test_five_hundred_sleeps_lose_no_request_and_delay_none_by_more_than_a_load() -> None:
    """Requests come at random moments around the transition: before it, during it, asleep and waking."""
    temper = Temper(load=(0.3, 1.0), service=(0.05, 0.2), stale_reports=0.3)
    plan = Plan(models(1, sleep_idle=1.0), Policy(), temper, arrivals=1300, interval=2.0, leave=0.0, light=0.1)
    simulation = Simulation(plan, 4).run()
    assert simulation.sleeps >= 500
    assert {client.outcome for client in simulation.clients.values()} == {"answered"}
    fall_asleep, wire = 0.3, 10 * temper.latency
    waits = [client.started - client.arrived for client in simulation.clients.values() if client.started is not None]
    assert max(waits[1:]) <= temper.load[1] + fall_asleep + wire


@pytest.mark.parametrize("seed", range(5))
def test_workers_that_die_all_the_time_still_serve(seed: int) -> None:
    temper = Temper(load=(0.1, 0.5), crash=0.05, hang=0.01, stubborn=0.2)
    plan = Plan(models(3), Policy(models_max=2, wedge_after=20.0), temper, arrivals=150, interval=1.0, leave=0.0)
    simulation = Simulation(plan, seed).run()
    outcomes = [client.outcome for client in simulation.clients.values()]
    assert outcomes.count("answered") > 0.6 * len(outcomes)
    assert set(outcomes) <= {"answered", "worker_died", "load_failed", "unavailable"}

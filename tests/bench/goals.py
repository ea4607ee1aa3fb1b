"""The numbers to reach, as data: each line of the table names a scenario, a figure, and the ratio it must keep."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from tests.bench import scenarios
from tests.bench.scenarios import Figures
from tests.bench.servers import Gateway

Run = Callable[[Gateway, tuple[str, str], random.Random], Awaitable[Figures]]


@dataclass(frozen=True)
class Goal:
    """`bound` on ours / theirs; at least where `at_least`, else at most. `floor` (ms) forgives what is below it.

    `absolute` compares our figure itself with the bound.
    """

    figure: str
    bound: float
    at_least: bool = False
    absolute: bool = False
    floor: float = 0.0

    def met(self, ours: float, theirs: float | None) -> bool:
        if self.absolute or theirs is None:
            return ours >= self.bound if self.at_least else ours <= self.bound
        ratio = ours / theirs
        return ratio >= self.bound if self.at_least else ratio <= self.bound or ours <= self.floor


@dataclass(frozen=True)
class Case:
    name: str
    run: Run
    goals: tuple[Goal, ...]
    models_max: int = 4
    extra: tuple[str, ...] = ()
    peer_extra: tuple[str, ...] = ()
    models: bool = field(default=False)
    """Whether the case needs two models."""
    defaults: bool = False
    """Whether each gateway chooses slots and context: both take four, and what the model was trained for."""
    beside: int = 0
    """Tiny models in the folder, beside the two."""


def _one(run: Callable[..., Awaitable[Figures]], **settings: int) -> Run:
    async def on_first(gateway: Gateway, models: tuple[str, str], rng: random.Random) -> Figures:
        return await partial(run, **settings)(gateway, models[0], rng)

    return on_first


CASES = (
    *(
        Case(f"throughput-{n}", _one(scenarios.throughput, clients=n), (Goal("tokens_per_s", 1.05, at_least=True),))
        for n in (1, 4, 8, 16)
    ),
    Case("first-token", _one(scenarios.first_token), (Goal("first_ms", 0.8),)),
    Case("late", _one(scenarios.late), (Goal("longest_gap_ms", 0.05), Goal("late_first_ms", 1.5))),
    Case("long-prompt", _one(scenarios.long_prompt), (Goal("first_ms", 1.0),)),
    Case("shared-prefix", _one(scenarios.shared_prefix), (Goal("total_ms", 0.25),)),
    Case("cancel", _one(scenarios.cancel), (Goal("served_ms", 0.01),)),
    Case("tokenize", _one(scenarios.tokenize), (Goal("requests_per_s", 2.0, at_least=True),)),
    Case("health", scenarios.health, (Goal("p99_ms", 1.1, floor=10.0),), models=True),
    Case("scrape", scenarios.scrape, (Goal("idle_ms", 1.0), Goal("busy_ms", 1.0)), models=True, beside=48),
    Case(
        "readers",
        scenarios.readers,
        (Goal("p99_ms", 1.1, floor=10.0),),
        models_max=1,
        # It keeps a thread for each open answer, by default too few for 200 of them.
        peer_extra=("--threads-http", "256"),
        models=True,
    ),
    Case(
        "swap",
        scenarios.swap,
        (Goal("first_ms_0", 0.6), Goal("first_ms_1", 0.6)),
        models_max=1,
        models=True,
        defaults=True,
    ),
    Case(
        "return",
        scenarios.come_back,
        (Goal("return_ms", 0.1),),
        models_max=1,
        extra=("--kv-keep", str(1 << 30)),
        models=True,
        defaults=True,
    ),
    Case("duo", scenarios.duo, (Goal("share", 0.9, at_least=True, absolute=True),), models=True),
)

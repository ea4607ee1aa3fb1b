"""Which prompts are decoded next, and how much of them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from worker.batch import Share, plan_prefill
from worker.step_cost import ALONE_FACTOR, MIN_CHUNK, StepCost


@dataclass
class Prompt:
    remaining: int
    started: bool = False
    waiting_since: float = 0.0
    border: int = 10**9

    @property
    def chunk_limit(self) -> int:
        return min(self.remaining, self.border)


@pytest.mark.parametrize(
    ("prompts", "room", "expected"),
    [
        ([], 100, []),
        ([Prompt(50)], 0, []),
        ([Prompt(50)], 100, [Share(0, 50)]),
        ([Prompt(300)], 100, [Share(0, 100)]),
        ([Prompt(300), Prompt(20), Prompt(30)], 100, [Share(1, 20), Share(2, 30), Share(0, 50)]),
        ([Prompt(50, border=20), Prompt(60)], 100, [Share(0, 20)]),
        # one in progress and one suspended: a third must wait, however short it is
        ([Prompt(500, started=True), Prompt(400, started=True), Prompt(5)], 100, [Share(1, 100)]),
        # one in progress may be suspended for a shorter one
        ([Prompt(500, started=True), Prompt(5)], 100, [Share(1, 5), Share(0, 95)]),
    ],
)
def test_shares(prompts: list[Prompt], room: int, expected: list[Share]) -> None:
    assert plan_prefill(prompts, room, ms_per_token=1.0, now=0.0) == expected


def test_a_long_prompt_is_not_passed_by_for_ever() -> None:
    long, short = Prompt(1000, waiting_since=0.0), Prompt(10, waiting_since=9.9)
    assert plan_prefill([long, short], 5, ms_per_token=4.0, now=10.0) == [Share(0, 5)]
    fresh = Prompt(1000, waiting_since=9.9)
    assert plan_prefill([fresh, short], 5, ms_per_token=4.0, now=10.0) == [Share(1, 5)]


def test_a_chunk_keeps_a_step_within_its_budget() -> None:
    cost = StepCost()
    for _ in range(30):
        cost.observe(4, 0, 20.0)
        cost.observe(4, 20, 20.0 + 20 * 4.0)
    assert cost.chunk(4, 100.0) == pytest.approx(20, abs=1)
    assert cost.chunk(4, 100.0) * 4.0 + 20.0 <= 104.0


def test_with_nothing_decoding_chunks_are_large() -> None:
    cost = StepCost()
    for _ in range(30):
        cost.observe(0, 500, 1000.0)
    assert cost.chunk(0, 100.0) == ALONE_FACTOR * 100 / 2


def test_prompts_get_on_where_decoding_alone_takes_more_than_the_budget() -> None:
    cost = StepCost()
    for _ in range(30):
        cost.observe(8, 0, 400.0)
        cost.observe(8, 10, 500.0)
    assert cost.chunk(8, 100.0) == pytest.approx(20, abs=1)


def test_there_is_always_some_progress() -> None:
    cost = StepCost()
    cost.observe(1, 1, 10_000.0)
    assert cost.chunk(1, 1.0) >= MIN_CHUNK

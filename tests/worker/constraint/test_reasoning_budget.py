"""The budget of a model's reasoning."""

from __future__ import annotations

from worker.reasoning_budget import BudgetState, ReasoningBudget

FORCED = (100, 101)


def _budget(limit: int, *, is_open: bool) -> ReasoningBudget:
    return ReasoningBudget([b"<think>"], [b"</think>"], FORCED, limit, is_open)


def _feed(budget: ReasoningBudget, *pieces: bytes) -> None:
    for piece in pieces:
        assert budget.forced_token() is None
        budget.accept(1, piece)


def test_reasoning_is_ended_when_its_tokens_are_used_up() -> None:
    budget = _budget(2, is_open=True)
    _feed(budget, b"one", b"two")
    assert budget.forced_token() == 100
    budget.accept(100, b"</th")
    assert budget.forced_token() == 101
    budget.accept(101, b"ink>")
    assert budget.forced_token() is None
    assert budget.state is BudgetState.DONE


def test_reasoning_that_ends_by_itself_is_left_alone() -> None:
    budget = _budget(10, is_open=True)
    _feed(budget, b"one", b"</thi", b"nk>", *[b"content"] * 20)
    assert budget.state is BudgetState.DONE


def test_counting_begins_at_the_start_tag() -> None:
    budget = _budget(1, is_open=False)
    _feed(budget, b"a", b"b", b"<thi", b"nk>", b"first")
    assert budget.forced_token() == 100


def test_a_budget_of_zero_ends_at_once() -> None:
    assert _budget(0, is_open=True).forced_token() == 100


def test_no_budget_never_ends_but_can_be_ended() -> None:
    budget = _budget(-1, is_open=True)
    _feed(budget, *[b"word"] * 1000)
    assert budget.end_now()
    assert budget.forced_token() == 100
    assert not budget.end_now()


def test_nothing_is_ended_outside_of_reasoning() -> None:
    budget = _budget(-1, is_open=False)
    assert not budget.end_now()
    assert budget.forced_token() is None


def test_a_character_is_not_torn_apart() -> None:
    budget = _budget(1, is_open=True)
    llama = "🦙".encode()
    _feed(budget, llama[:1], llama[1:2], llama[2:3])
    budget.accept(1, llama[3:])
    assert budget.forced_token() == 100


def test_bytes_that_are_no_character_do_not_hold_up_the_end() -> None:
    budget = _budget(1, is_open=True)
    budget.accept(1, b"\xff")
    assert budget.forced_token() == 100


def test_each_reasoning_has_the_whole_budget() -> None:
    budget = _budget(2, is_open=True)
    _feed(budget, b"a", b"</think>", b"answer", b"<think>", b"b")
    assert budget.state is BudgetState.COUNTING
    _feed(budget, b"c")
    assert budget.forced_token() == 100

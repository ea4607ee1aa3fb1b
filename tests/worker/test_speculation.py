"""Guesses: where they come from, and when they are worth their cost."""

from __future__ import annotations

import time

from worker.sampling_pool import WORTH_MS, SamplingPool
from worker.shift import shift_plan
from worker.speculation import RETRY_AFTER, Acceptance, _GramIndex


def test_a_text_goes_on_as_it_did_before() -> None:
    index, tokens = _GramIndex(), [1, 2, 3, 4, 5, 9, 2, 3]
    index.extend(tokens)
    assert index.continuation(tokens, 3) == [4, 5, 9]
    tokens += [4]
    index.extend(tokens)
    assert index.continuation(tokens, 2) == [5, 9]


def test_the_newest_of_several_places_counts() -> None:
    index, tokens = _GramIndex(), [1, 2, 7, 1, 2, 8, 1, 2]
    index.extend(tokens)
    assert index.continuation(tokens, 1) == [8]


def test_nothing_is_guessed_from_nothing() -> None:
    index = _GramIndex()
    index.extend([1])
    assert index.continuation([1], 4) == []
    index.extend([1, 2, 3])
    assert index.continuation([1, 2, 3], 4) == []


def test_a_text_that_became_shorter_is_read_anew() -> None:
    index = _GramIndex()
    index.extend([1, 2, 3, 4, 1, 2])
    shifted = [9, 8, 7, 9, 8]
    index.extend(shifted)
    assert index.continuation(shifted, 2) == [7, 9]


def test_wrong_guesses_are_given_up_and_tried_again_later() -> None:
    acceptance = Acceptance()
    assert acceptance.pays(token_ms=10.0, draft_ms=4.0, n_generated=0)
    for _ in range(20):
        acceptance.checked(4, 0)
    assert not acceptance.pays(10.0, 4.0, n_generated=100)
    assert not acceptance.pays(10.0, 4.0, n_generated=100 + RETRY_AFTER - 1)
    acceptance.pays(10.0, 4.0, n_generated=100 + RETRY_AFTER)
    assert acceptance.pays(10.0, 4.0, n_generated=101 + RETRY_AFTER)


def test_guesses_that_cost_as_much_as_a_token_never_pay() -> None:
    acceptance = Acceptance()
    for _ in range(50):
        acceptance.checked(4, 4)
    assert not acceptance.pays(token_ms=5.0, draft_ms=5.1, n_generated=0)


def test_what_a_shift_drops() -> None:
    assert shift_plan(range(100), 20, n_keep=0, n_discard=0) == (0, 49)
    assert shift_plan(range(100), 20, n_keep=-1, n_discard=0) == (20, 59)
    assert shift_plan(range(100), 20, n_keep=10, n_discard=5) == (10, 15)
    start, stop = shift_plan(range(100), 100, n_keep=-1, n_discard=0)
    assert 0 < start < stop < 100


def test_sampling_is_divided_only_where_that_is_quicker() -> None:
    pool = SamplingPool(2)
    try:
        assert pool.run(lambda job: job * 2, [1, 2, 3]) == [2, 4, 6]
        assert pool._pool is None, "so little work is not divided"

        def slow(job: int) -> int:
            until = time.perf_counter() + WORTH_MS / 1000
            while time.perf_counter() < until:
                pass
            return job

        for _ in range(30):
            assert pool.run(slow, [1, 2]) == [1, 2]
        assert pool._pool is not None, "it was tried"
    finally:
        pool.close()

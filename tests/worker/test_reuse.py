"""Parts of a finished sequence that a prompt contains too."""

from __future__ import annotations

import itertools
import random

import pytest

from worker.reuse import reusable_chunks

A, B, C, X = [1] * 10, [2, 3] * 5, [4, 5, 6] * 4, [9] * 7


@pytest.mark.parametrize(
    ("cached", "prompt", "start", "least", "expected"),
    [
        (A + X + B, [*A, *B, 0], 10, 5, [(17, 10)]),
        (A + X + B, [*A, *B, 0], 0, 5, [(0, 10), (17, 10)]),
        (X + A + X + B + C, [*A, *B, *C, 0], 0, 5, [(7, 10), (24, 22)]),
        (A + X + B, [*A, *B, 0], 10, 11, []),
        (A + B, A + B, 10, 1, [(10, 9)]),
        (A + B, [*A, 0, *B, 0], 10, 5, []),
        ([], A, 0, 1, []),
        (A, [], 0, 1, []),
    ],
)
def test_parts_are_found_in_order(
    cached: list[int], prompt: list[int], start: int, least: int, expected: list[tuple[int, int]]
) -> None:
    assert reusable_chunks(cached, prompt, start, least) == expected


def test_the_parts_are_always_the_prompts_beginning() -> None:
    rng = random.Random(4)
    for _ in range(300):
        cached = rng.choices((1, 2, 3), k=rng.randint(0, 40))
        prompt = rng.choices((1, 2, 3), k=rng.randint(0, 40))
        least = rng.randint(1, 5)
        chunks = reusable_chunks(cached, prompt, 0, least)
        found = [token for at, length in chunks for token in cached[at : at + length]]
        assert found == prompt[: len(found)]
        assert len(found) <= max(0, len(prompt) - 1)
        assert all(length >= least for _, length in chunks)
        assert all(a + length <= b for (a, length), (b, _) in itertools.pairwise(chunks))

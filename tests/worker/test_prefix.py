"""The radix tree against comparing with every sequence."""

from __future__ import annotations

import random

from worker.prefix import RadixTree


def common(left: list[int], right: list[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


def test_the_longest_usable_prefix() -> None:
    tree = RadixTree()
    tree.insert(1, [1, 2, 3, 4])
    tree.insert(2, [1, 2, 9])
    assert tree.longest([1, 2, 3, 7], lambda _s, length: length) == (3, 1)
    assert tree.longest([1, 2, 3, 7], lambda s, length: min(length, 1) if s == 1 else length) == (2, 2)
    assert tree.longest([5], lambda _s, length: length) == (0, -1)
    assert tree.longest([1, 2], lambda _s, length: length, namespace="other") == (0, -1)


def test_it_finds_what_comparing_finds_after_any_history() -> None:
    rng = random.Random(3)
    for _ in range(150):
        tree = RadixTree()
        known: dict[int, list[int]] = {}
        for _ in range(40):
            sequence = rng.randrange(8)
            if rng.random() < 0.3:
                tree.remove(sequence)
                known.pop(sequence, None)
            else:
                tokens = [rng.randrange(3) for _ in range(rng.randint(0, 8))]
                tree.insert(sequence, tokens)
                known[sequence] = tokens
            assert len(tree) == len(known)
            wanted = [rng.randrange(3) for _ in range(8)]
            best = max((common(tokens, wanted) for tokens in known.values()), default=0)
            length, holder = tree.longest(wanted, lambda _s, shared: shared)
            assert length == best
            assert holder == -1 if best == 0 else common(known[holder], wanted) == best


def test_removing_everything_leaves_nothing() -> None:
    tree = RadixTree()
    for sequence in range(5):
        tree.insert(sequence, list(range(sequence + 1)))
    for sequence in range(5):
        tree.remove(sequence)
    assert len(tree) == 0
    assert tree.longest([0], lambda _s, length: length) == (0, -1)

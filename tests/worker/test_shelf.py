"""Kept states: prefixes once, within the budget, never without what they build on."""

from __future__ import annotations

import random

from worker.shelf import LEAST_TAIL, Shelf

PREFIX = list(range(100))


def state(tokens: list[int], start: int) -> bytes:
    return bytes(10 * (len(tokens) - start))


def put(shelf: Shelf, tokens: list[int]) -> None:
    shelf.put(tokens, (), lambda start: state(tokens, start))


def test_a_tail_builds_on_a_shared_prefix() -> None:
    shelf = Shelf(1 << 20)
    put(shelf, [*PREFIX, *range(1000, 1050)])
    put(shelf, [*PREFIX, *range(2000, 2050)])
    length, entry = shelf.find([*PREFIX, *range(2000, 2050), 5], ())
    assert length == 150
    assert entry is not None
    assert [link.start for link in shelf.chain(entry)] == [0, 100]
    assert len(entry.read()) == 500


def test_short_tails_and_known_sequences_are_not_kept() -> None:
    shelf = Shelf(1 << 20)
    put(shelf, PREFIX)
    put(shelf, PREFIX[:50])
    put(shelf, [*PREFIX, *range(1000, 1000 + LEAST_TAIL - 1)])
    assert len(shelf) == 1


def test_indivisible_states_stand_for_themselves() -> None:
    shelf = Shelf(1 << 20, divisible=False)
    put(shelf, [*PREFIX, *range(1000, 1050)])
    put(shelf, [*PREFIX, *range(2000, 2050)])
    assert all(entry.start == 0 for entry in shelf)
    assert shelf.find(PREFIX, ()) == (0, None)
    assert shelf.find([*PREFIX, *range(1000, 1060)], ())[0] == 150


def test_namespaces_share_nothing() -> None:
    shelf = Shelf(1 << 20)
    put(shelf, PREFIX)
    assert shelf.find(PREFIX, ((0, 1.0),)) == (0, None)


def test_what_is_too_large_is_not_kept() -> None:
    shelf = Shelf(100)
    put(shelf, PREFIX)
    assert len(shelf) == 0
    assert shelf.n_bytes == 0


def test_the_budget_holds_and_no_tail_loses_its_prefix() -> None:
    rng = random.Random(5)
    shelf = Shelf(20_000)
    for _ in range(400):
        head = [rng.randrange(3)] * 60
        put(shelf, [*head, *[rng.randrange(4) for _ in range(rng.randint(40, 90))]])
        assert 0 <= shelf.n_bytes <= shelf.budget
        entries = list(shelf)
        assert shelf.n_bytes == sum(entry.n_bytes for entry in entries)
        for position, entry in enumerate(entries):
            assert entry.parent is None or entry.parent in entries[:position]
    shelf.clear()
    assert shelf.n_bytes == len(shelf) == 0

"""The cache's decisions, against a memory that knows which token is in which cell."""

from __future__ import annotations

import json

import pytest

from worker.kv_cache import FETCH_GAIN, KvCache, Match
from worker.shelf import Shelf

PROMPT = list(range(100, 200))


class Memory:
    """Sequences as lists of tokens; a state is their JSON."""

    def __init__(self) -> None:
        self.held: dict[int, dict[int, int]] = {}
        self.next_tokens: list[int] = []

    def write(self, sequence: int, tokens: list[int]) -> None:
        self.held[sequence] = dict(enumerate(tokens))

    def share(self, source: int, target: int, length: int) -> None:
        self.held.setdefault(target, {}).update({p: t for p, t in self.held[source].items() if p < length})

    def share_all(self, source: int, target: int) -> None:
        self.held[target] = dict(self.held[source])

    def share_from(self, source: int, target: int, start: int) -> None:
        self.held.setdefault(target, {}).update({p: t for p, t in self.held[source].items() if p >= start})

    def truncate(self, sequence: int, length: int) -> bool:
        self.held[sequence] = {p: t for p, t in self.held[sequence].items() if p < length}
        return True

    def drop(self, sequence: int) -> None:
        self.held.pop(sequence, None)

    def shift(self, sequence: int, start: int, stop: int) -> None:
        kept = {p: t for p, t in self.held[sequence].items() if not start <= p < stop}
        self.held[sequence] = {p - (stop - start) if p >= stop else p: t for p, t in kept.items()}

    def save(self, sequence: int) -> bytes:
        return json.dumps(sorted(self.held[sequence].items())).encode()

    def restore(self, sequence: int, state: bytes) -> bool:
        self.held[sequence] = dict(json.loads(state))
        return True

    def tokens(self, sequence: int) -> list[int]:
        held = self.held[sequence]
        assert sorted(held) == list(range(len(held))), "positions have gaps"
        return [held[position] for position in range(len(held))]


class Bench:
    def __init__(self, **options: object) -> None:
        self.memory = Memory()
        options.setdefault("n_sequences", 6)
        options.setdefault("n_cells", 1000)
        self.cache = KvCache(self.memory, **options)  # type: ignore[arg-type]

    def run(self, tokens: list[int], decoded: int | None = None) -> int:
        """Begin a sequence, share what can be shared, decode the rest."""
        match = self.cache.match(tokens, ())
        sequence = self.cache.begin(tokens, ())
        self.cache.adopt(sequence, match)
        count = len(tokens) if decoded is None else decoded
        self.memory.write(sequence, tokens[:count])
        self.cache.grew(sequence, count - match.length)
        return sequence

    def finish(self, tokens: list[int]) -> int:
        sequence = self.run(tokens)
        self.cache.settle(sequence, tokens)
        return sequence


def test_one_token_at_least_is_left_to_compute() -> None:
    bench = Bench()
    sequence = bench.finish(PROMPT)
    assert bench.cache.match(PROMPT, ()) == Match(99, sequence)
    assert bench.cache.match([*PROMPT, 1], ()) == Match(100, sequence)
    assert bench.cache.match(PROMPT, ((0, 1.0),)) == Match()


def test_shared_cells_count_once() -> None:
    bench = Bench()
    bench.finish([*PROMPT, 1, 2])
    bench.finish([*PROMPT, 3, 4, 5])
    assert bench.cache.cells.used == 105


def test_a_running_prompt_promises_what_it_has_not_yet_decoded() -> None:
    bench = Bench()
    runner = bench.run(PROMPT, decoded=10)
    match = bench.cache.match([*PROMPT[:80], 1, 2], (), gain=16)
    assert match == Match(10, runner, promised=80, promiser=runner)
    bench.cache.grew(runner, 90)
    assert bench.cache.match([*PROMPT[:80], 1, 2], (), gain=16) == Match(80, runner)


def test_waiting_must_gain_something() -> None:
    bench = Bench()
    bench.run(PROMPT, decoded=70)
    assert bench.cache.match([*PROMPT[:80], 1], (), gain=16).promiser == -1


def test_a_sequence_that_another_covers_is_dropped() -> None:
    bench = Bench()
    bench.finish(PROMPT)
    longer = bench.finish([*PROMPT, 1, 2, 3])
    assert bench.cache.idle_sequences == (longer,)
    bench.finish(PROMPT[:50])
    assert bench.cache.idle_sequences == (longer,)


def test_the_least_recently_used_goes_first() -> None:
    bench = Bench(n_cells=300)
    first = bench.finish([1, *PROMPT])
    second = bench.finish([2, *PROMPT])
    bench.finish([1, *PROMPT, 7])  # uses the first again
    assert bench.cache.make_room(150)
    assert second not in bench.cache.idle_sequences
    assert first not in bench.cache.idle_sequences, "covered by what continues it"
    assert bench.cache.cells.free >= 150


def test_running_sequences_are_not_dropped_for_room() -> None:
    bench = Bench(n_cells=150)
    bench.run(PROMPT)
    assert not bench.cache.make_room(51)
    assert bench.cache.make_room(50)


def test_idle_sequences_move_to_the_shelf_and_back() -> None:
    bench = Bench(shelf=Shelf(1 << 20), idle_cells=0)
    one, two = [1, *PROMPT], [1, *PROMPT[:60], *range(300, 360)]
    bench.finish(one)
    bench.cache.trim()
    bench.finish(two)
    bench.cache.trim()
    assert bench.cache.cells.used == 0
    assert bench.memory.held == {}
    for tokens in (one, two):
        assert bench.cache.fetch([*tokens, 5], (), beyond=0)
        match = bench.cache.match([*tokens, 5], ())
        assert match.length == len(tokens)
        assert bench.memory.tokens(match.source) == tokens


def test_what_is_fetched_must_be_worth_it() -> None:
    bench = Bench(shelf=Shelf(1 << 20), idle_cells=0)
    bench.finish(PROMPT)
    bench.cache.trim()
    assert not bench.cache.fetch([*PROMPT, 5], (), beyond=100 - FETCH_GAIN + 1)
    assert not bench.cache.fetch([*PROMPT[:20], 5], (), beyond=0)


def test_only_the_part_that_is_shared_comes_back() -> None:
    bench = Bench(shelf=Shelf(1 << 20), idle_cells=0)
    bench.finish(PROMPT)
    bench.cache.trim()
    assert bench.cache.fetch([*PROMPT[:70], 1, 2], (), beyond=0)
    assert bench.cache.cells.used == 70


@pytest.mark.parametrize("length", [0, 30, 99])
def test_indivisible_sequences_are_shared_whole_or_not_at_all(length: int) -> None:
    bench = Bench(divisible=False)
    runner = bench.run(PROMPT, decoded=max(length, 1))
    if length:
        bench.cache.snapshot(runner, PROMPT[:length])
    match = bench.cache.match([*PROMPT[:99], 7, 8], ())
    assert match.length == length


def test_a_shift_is_known_to_the_ledger_and_shared_with_nobody() -> None:
    bench = Bench()
    runner = bench.run(PROMPT)
    bench.cache.shift(runner, 10, 40)
    assert bench.cache.cells.used == 70
    assert bench.memory.tokens(runner) == [*PROMPT[:10], *PROMPT[40:]]
    assert bench.cache.match([*PROMPT, 1], ()).length == 10


def test_export_import_and_erase() -> None:
    bench, other = Bench(shelf=Shelf(1 << 20), idle_cells=0), Bench()
    bench.finish(PROMPT)
    bench.cache.trim()
    length, state = bench.cache.export(PROMPT, ())
    assert length == 100
    assert other.cache.import_state(PROMPT, (), state)
    assert other.cache.match([*PROMPT, 1], ()).length == 100
    assert len(bench.cache.erase(PROMPT, ())) == 1
    other.cache.erase(PROMPT, ())
    assert bench.cache.cells.used == other.cache.cells.used == len(bench.cache.shelf) == 0
    assert bench.cache.export(PROMPT, ()) == (0, b"")


def test_ids_run_out_only_for_the_oldest_idle_sequence() -> None:
    bench = Bench(n_sequences=4)
    sequences = [bench.finish([number, *PROMPT]) for number in range(3)]
    fourth = bench.run([9, *PROMPT])
    assert fourth == sequences[0]
    assert bench.cache.idle_sequences == tuple(sequences[1:])


def test_parts_of_an_idle_sequence_are_moved_together() -> None:
    bench = Bench(movable=True)
    head, gone, tail = PROMPT[:20], list(range(500, 530)), PROMPT[20:60]
    bench.finish(head + gone + tail)
    prompt = head + tail + [7, 8]
    sequence = bench.cache.begin(prompt, ())
    assert bench.cache.reuse(sequence, prompt, bench.cache.match(prompt, ()), 8) == 60
    assert bench.memory.tokens(sequence) == head + tail
    assert bench.cache.cells.used == bench.cache.cells.length(sequence) == 60
    assert bench.cache.idle_sequences == ()
    bench.cache.grew(sequence, 2)
    bench.cache.settle(sequence, prompt)
    assert bench.cache.match([*prompt, 9], ()).length == 0, "only those who ask for it get what was moved"
    longer = [*prompt, 9, 10]
    again = bench.cache.begin(longer, ())
    assert bench.cache.reuse(again, longer, bench.cache.match(longer, ()), 8) == 62


def test_parts_that_others_share_stay_where_they_are() -> None:
    bench = Bench(movable=True)
    whole = PROMPT[:20] + list(range(500, 530)) + PROMPT[20:60]
    bench.finish(whole)
    other = bench.cache.begin([*whole, 1], ())
    bench.cache.adopt(other, bench.cache.match([*whole, 1], ()))
    prompt = [*PROMPT[:60], 7]
    sequence = bench.cache.begin(prompt, ())
    assert bench.cache.reuse(sequence, prompt, bench.cache.match(prompt, ()), 8) == 20
    assert bench.memory.tokens(sequence) == PROMPT[:20]
    assert bench.memory.tokens(other) == whole

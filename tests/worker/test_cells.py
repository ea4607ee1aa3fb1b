"""The ledger against a model of cells that counts each one."""

from __future__ import annotations

import random

from worker.cells import CellLedger


class Model:
    """Every cell by name."""

    def __init__(self) -> None:
        self.sequences: dict[int, list[int]] = {}
        self._next = 0

    def append(self, sequence: int, count: int) -> None:
        cells = self.sequences.setdefault(sequence, [])
        cells.extend(range(self._next, self._next + count))
        self._next += count

    @property
    def used(self) -> int:
        return len({cell for cells in self.sequences.values() for cell in cells})


def test_sharing_and_dropping() -> None:
    ledger = CellLedger(100)
    ledger.append(1, 10)
    ledger.share(1, 2, 6)
    assert ledger.used == 10
    ledger.append(2, 3)
    assert (ledger.used, ledger.length(2), ledger.owned(2)) == (13, 9, 3)
    assert ledger.owns_from(2, 6)
    assert not ledger.owns_from(2, 5)
    ledger.drop(1)
    assert (ledger.used, ledger.owned(2)) == (9, 9)
    ledger.remove(2, 2, 4)
    assert ledger.length(2) == ledger.used == 7
    ledger.clear()
    assert ledger.free == 100


def test_it_agrees_with_the_model_after_any_history() -> None:
    rng = random.Random(7)
    for _ in range(200):
        ledger, model = CellLedger(10_000), Model()
        for _ in range(60):
            sequence = rng.randrange(6)
            cells = model.sequences.get(sequence, [])
            match rng.randrange(4):
                case 0:
                    count = rng.randint(1, 9)
                    ledger.append(sequence, count)
                    model.append(sequence, count)
                case 1:
                    length = rng.randint(0, len(cells))
                    ledger.truncate(sequence, length)
                    model.sequences[sequence] = cells[:length]
                case 2:
                    ledger.drop(sequence)
                    model.sequences.pop(sequence, None)
                case 3:
                    target = rng.choice([other for other in range(6) if other != sequence])
                    ledger.drop(target)
                    length = rng.randint(0, len(cells))
                    ledger.share(sequence, target, length)
                    model.sequences[target] = cells[:length]
            assert ledger.used == model.used
            assert all(ledger.length(s) == len(c) for s, c in model.sequences.items())
            chosen = [s for s in range(6) if rng.random() < 0.5]
            held = {cell for s in chosen for cell in model.sequences.get(s, [])}
            assert ledger.held_by(chosen) == len(held)

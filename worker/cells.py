"""Which cells of the unified KV cache are held by which sequences: the engine itself does not say."""

from __future__ import annotations

from collections.abc import Iterable


class _Run:
    """Cells that the same sequences hold, in a row."""

    __slots__ = ("length", "owners")

    def __init__(self, length: int, owners: set[int]) -> None:
        self.length = length
        self.owners = owners


class CellLedger:
    """Counts cells, each once however many sequences share it. Mirrors every change made to the engine's cache."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._runs: dict[int, list[_Run]] = {}

    @property
    def free(self) -> int:
        return self.total - self.used

    def length(self, sequence: int) -> int:
        return sum(run.length for run in self._runs.get(sequence, ()))

    def owned(self, sequence: int) -> int:
        """Cells that dropping the sequence would free."""
        return sum(run.length for run in self._runs.get(sequence, ()) if len(run.owners) == 1)

    def held_by(self, sequences: Iterable[int]) -> int:
        """Cells that at least one of the sequences holds."""
        runs = {id(run): run.length for sequence in sequences for run in self._runs.get(sequence, ())}
        return sum(runs.values())

    def owns_from(self, sequence: int, start: int) -> bool:
        """Whether nobody shares the cells of a sequence from position `start` on."""
        position = 0
        for run in self._runs.get(sequence, ()):
            position += run.length
            if position > start and len(run.owners) > 1:
                return False
        return True

    def append(self, sequence: int, count: int) -> None:
        if count <= 0:
            return
        runs = self._runs.setdefault(sequence, [])
        if runs and runs[-1].owners == {sequence}:
            runs[-1].length += count
        else:
            runs.append(_Run(count, {sequence}))
        self.used += count

    def share(self, source: int, target: int, length: int) -> None:
        """Let `target`, which holds nothing, hold the first `length` cells of `source`."""
        self._split(source, length)
        shared: list[_Run] = []
        position = 0
        for run in self._runs.get(source, ()):
            if position >= length:
                break
            run.owners.add(target)
            shared.append(run)
            position += run.length
        self._runs[target] = shared

    def hand_over(self, source: int, target: int, start: int) -> None:
        """Give the cells of `source` from position `start` on, which nobody shares, to `target`, behind its own."""
        self._split(source, start)
        kept: list[_Run] = []
        given: list[_Run] = []
        position = 0
        for run in self._runs.get(source, ()):
            (kept if position < start else given).append(run)
            position += run.length
        for run in given:
            run.owners = {target}
        self._runs[source] = kept
        self._runs.setdefault(target, []).extend(given)

    def truncate(self, sequence: int, length: int) -> None:
        """Let go of everything from position `length` on."""
        self._split(sequence, length)
        kept: list[_Run] = []
        position = 0
        for run in self._runs.pop(sequence, []):
            if position < length:
                kept.append(run)
            else:
                self._release(run, sequence)
            position += run.length
        if kept:
            self._runs[sequence] = kept

    def drop(self, sequence: int) -> None:
        for run in self._runs.pop(sequence, []):
            self._release(run, sequence)

    def remove(self, sequence: int, start: int, stop: int) -> None:
        """Let go of the cells between two positions."""
        self._split(sequence, start)
        self._split(sequence, stop)
        kept: list[_Run] = []
        position = 0
        for run in self._runs.get(sequence, []):
            if start <= position < stop:
                self._release(run, sequence)
            else:
                kept.append(run)
            position += run.length
        self._runs[sequence] = kept

    def clear(self) -> None:
        self._runs.clear()
        self.used = 0

    def _release(self, run: _Run, sequence: int) -> None:
        run.owners.discard(sequence)
        if not run.owners:
            self.used -= run.length

    def _split(self, sequence: int, at: int) -> None:
        """Let a border between runs be at position `at`, for every sequence that holds the run there."""
        position = 0
        for run in self._runs.get(sequence, ()):
            if position < at < position + run.length:
                front = _Run(at - position, set(run.owners))
                run.length -= front.length
                for owner in run.owners:
                    runs = self._runs[owner]
                    runs.insert(next(i for i, other in enumerate(runs) if other is run), front)
                return
            position += run.length

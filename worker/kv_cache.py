"""The KV cache as requests see it: sequence ids, shared prefixes, room, and what is dropped first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from worker.cells import CellLedger
from worker.prefix import RadixTree


class SequenceMemory(Protocol):
    """What the engine's cache can do with sequences."""

    def share(self, source: int, target: int, length: int) -> None: ...

    def share_all(self, source: int, target: int) -> None: ...

    def truncate(self, sequence: int, length: int) -> bool: ...

    def drop(self, sequence: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Match:
    """What the cache has of a prompt.

    `length` tokens can be shared from sequence `source` now. A running prompt, `promiser`, will have `promised` of them
    once it is decoded that far; 0 when waiting for it would gain nothing.
    """

    length: int = 0
    source: int = -1
    promised: int = 0
    promiser: int = -1


class KvCache:
    """Hands out sequence ids and keeps finished sequences for the prompts to come.

    `divisible` says that any prefix of a sequence can be shared; where it is False (sliding windows, recurrent state)
    only whole idle sequences can, so that snapshots are taken at the points where prompts are expected to part.
    """

    def __init__(self, memory: SequenceMemory, n_sequences: int, n_cells: int, divisible: bool = True) -> None:
        self.divisible = divisible
        self.cells = CellLedger(n_cells)
        self._memory = memory
        self._free_ids = list(range(n_sequences - 1, -1, -1))
        self._tree = RadixTree()
        self._namespaces: dict[int, Hashable] = {}
        self._idle: dict[int, None] = {}
        """Idle sequences, least recently used first."""

    @property
    def idle_sequences(self) -> tuple[int, ...]:
        """Least recently used first."""
        return tuple(self._idle)

    def tokens(self, sequence: int) -> list[int]:
        """The tokens of an idle sequence, or the prompt of a running one."""
        return [int(token) for token in self._tree.tokens(sequence)]

    def namespace(self, sequence: int) -> Hashable:
        return self._namespaces[sequence]

    def decoded(self, sequence: int) -> int:
        """Tokens of a sequence that are in the cache."""
        return self.cells.length(sequence)

    def match(self, tokens: Sequence[int], namespace: Hashable, gain: int = 1) -> Match:
        """The best prefix for a prompt, of which one token at least is left to compute for its logits.

        `gain` is the number of tokens by which a promised prefix must exceed one that is there.
        """
        limit = len(tokens) - 1
        length, source = self._tree.longest(tokens, lambda s, common: self._usable(s, min(common, limit)), namespace)
        promised, promiser = self._tree.longest(
            tokens, lambda s, common: 0 if s in self._idle else min(common, limit), namespace
        )
        if promised < length + gain or (self.decoded(promiser) >= promised > 0 and self.divisible):
            promised, promiser = 0, -1
        return Match(length, source, promised, promiser)

    def _usable(self, sequence: int, common: int) -> int:
        decoded = self.decoded(sequence)
        if self.divisible:
            return min(common, decoded)
        return decoded if sequence in self._idle and decoded <= common else 0

    def begin(self, tokens: Sequence[int], namespace: Hashable) -> int:
        """A sequence id for a prompt that will now be decoded; drops the least recently used one if none is free.

        The caller runs no more sequences at once than there are ids.
        """
        if not self._free_ids:
            self.drop(next(iter(self._idle)))
        sequence = self._free_ids.pop()
        self._namespaces[sequence] = namespace
        self._tree.insert(sequence, tokens, namespace)
        return sequence

    def adopt(self, sequence: int, match: Match) -> None:
        """Let a new sequence begin with a matched prefix."""
        if not match.length:
            return
        if self.divisible:
            self._memory.share(match.source, sequence, match.length)
        else:
            self._memory.share_all(match.source, sequence)
        self.cells.share(match.source, sequence, match.length)
        self._touch(match.source)

    def grew(self, sequence: int, count: int) -> None:
        """`count` more tokens of a sequence have been decoded."""
        self.cells.append(sequence, count)

    def cut(self, sequence: int, length: int) -> bool:
        """Drop what a running sequence has from `length` on; False if its state cannot be cut there."""
        if not self._memory.truncate(sequence, length):
            return False
        self.cells.truncate(sequence, length)
        return True

    def snapshot(self, sequence: int, tokens: Sequence[int]) -> None:
        """Keep the present state of a running sequence as an idle one; `tokens` are what it has decoded."""
        if not self._free_ids and not self._idle:
            return
        copy = self.begin(tokens, self._namespaces[sequence])
        self._memory.share_all(sequence, copy)
        self.cells.share(sequence, copy, len(tokens))
        self._idle[copy] = None

    def settle(self, sequence: int, tokens: Sequence[int]) -> None:
        """A sequence has ended; it stays, idle, with `tokens`: what it has decoded."""
        if not tokens:
            self.drop(sequence)
            return
        namespace = self._namespaces[sequence]
        self._tree.insert(sequence, tokens, namespace)
        self._idle[sequence] = None
        if self.divisible:
            self._drop_covered(sequence, tokens, namespace)

    def _drop_covered(self, sequence: int, tokens: Sequence[int], namespace: Hashable) -> None:
        """Idle sequences that are a prefix of another cost an id and give nothing."""
        covering, _ = self._tree.longest(
            tokens,
            lambda s, common: min(common, self.decoded(s)) if s in self._idle and s != sequence else 0,
            namespace,
        )
        if covering == len(tokens):
            self.drop(sequence)
            return
        while True:
            _, covered = self._tree.longest(
                tokens,
                lambda s, common: (
                    common if s in self._idle and s != sequence and common == len(self._tree.tokens(s)) else 0
                ),
                namespace,
            )
            if covered < 0:
                return
            self.drop(covered)

    def drop(self, sequence: int) -> None:
        """Forget a sequence and free the cells that it alone holds."""
        self._memory.drop(sequence)
        self.cells.drop(sequence)
        self._tree.remove(sequence)
        self._idle.pop(sequence, None)
        del self._namespaces[sequence]
        self._free_ids.append(sequence)

    def drop_idle(self) -> bool:
        """Drop the least recently used idle sequence; False if there is none."""
        if not self._idle:
            return False
        self.drop(next(iter(self._idle)))
        return True

    def make_room(self, count: int) -> bool:
        """Free cells until `count` are free, least recently used idle sequences first; False if that cannot be done."""
        while self.cells.free < count:
            if not self.drop_idle():
                return False
        return True

    def clear(self) -> None:
        """Forget every idle sequence."""
        while self.drop_idle():
            pass

    def _touch(self, sequence: int) -> None:
        if sequence in self._idle:
            del self._idle[sequence]
            self._idle[sequence] = None

"""The KV cache as requests see it: sequence ids, shared prefixes, room, and what is dropped first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from worker.cells import CellLedger
from worker.media_tokens import border, is_media, position
from worker.prefix import RadixTree
from worker.reuse import Chunk, reusable_chunks
from worker.shelf import Entry, Namespace, Shelf, StateLost

FETCH_GAIN = 32
"""Tokens that fetching a state from the shelf must save."""
DONORS = 4
"""Idle sequences that are searched for parts of a prompt."""
_MOVED = (-1, 1.0)
"""Marks the namespace of sequences that were put together from parts of others: no adapter has this number."""


class SequenceMemory(Protocol):
    """What the engine's cache can do with sequences."""

    def share(self, source: int, target: int, length: int) -> None: ...

    def share_all(self, source: int, target: int) -> None: ...

    def truncate(self, sequence: int, length: int) -> bool: ...

    def drop(self, sequence: int) -> None: ...

    def share_from(self, source: int, target: int, start: int) -> None: ...

    def shift(self, sequence: int, start: int, stop: int) -> None: ...

    def save(self, sequence: int) -> bytes: ...

    def restore(self, sequence: int, state: bytes) -> bool: ...


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

    Idle sequences make every step slower where attention passes over their cells too, as it does on a CPU: those beyond
    `idle_cells` are moved to the shelf, from which a prompt that can use them gets them back.

    `divisible` says that any prefix of a sequence can be shared; where it is False (sliding windows, recurrent state)
    only whole idle sequences can, so that snapshots are taken at the points where prompts are expected to part. No
    prefix ends within the tokens of an image or a sound (`media_tokens`).

    Lengths count tokens, which are cells; the engine is told positions.
    """

    def __init__(
        self,
        memory: SequenceMemory,
        n_sequences: int,
        n_cells: int,
        divisible: bool = True,
        shelf: Shelf | None = None,
        idle_cells: int | None = None,
        movable: bool = False,
    ) -> None:
        self.divisible = divisible
        self.movable = movable and divisible
        """Whether cells can take other positions."""
        self.cells = CellLedger(n_cells)
        self.shelf = Shelf(0, divisible) if shelf is None else shelf
        self._idle_cells = n_cells if idle_cells is None else idle_cells
        self._memory = memory
        self._scratch = n_sequences - 1
        self._free_ids = list(range(n_sequences - 2, -1, -1))
        self._tree = RadixTree()
        self._namespaces: dict[int, Namespace] = {}
        self._idle: dict[int, None] = {}
        """Idle sequences, least recently used first."""

    @property
    def idle_sequences(self) -> tuple[int, ...]:
        """Least recently used first."""
        return tuple(self._idle)

    def tokens(self, sequence: int) -> list[int]:
        """The tokens of an idle sequence, or the prompt of a running one."""
        return [int(token) for token in self._tree.tokens(sequence)]

    def namespace(self, sequence: int) -> Namespace:
        return self._namespaces[sequence]

    def decoded(self, sequence: int) -> int:
        """Tokens of a sequence that are in the cache."""
        return self.cells.length(sequence)

    def match(self, tokens: Sequence[int], namespace: Namespace, gain: int = 1) -> Match:
        """The best prefix for a prompt, of which one token at least is left to compute for its logits.

        `gain` is the number of tokens by which a promised prefix must exceed one that is there.
        """
        limit = len(tokens) - 1
        length, source = self._tree.longest(
            tokens, lambda s, common: border(tokens, self._usable(s, min(common, limit))), namespace
        )
        promised, promiser = self._tree.longest(
            tokens, lambda s, common: self._promised(s, border(tokens, min(common, limit))), namespace
        )
        if promised < length + gain:
            promised, promiser = 0, -1
        return Match(length, source, promised, promiser)

    def _promised(self, sequence: int, common: int) -> int:
        """Of the tokens that a sequence shares with a prompt, those that it will have decoded, if it has not yet."""
        return common if sequence not in self._idle and self.decoded(sequence) < common else 0

    def _usable(self, sequence: int, common: int) -> int:
        decoded = self.decoded(sequence)
        if self.divisible:
            return min(common, decoded)
        return decoded if sequence in self._idle and decoded <= common else 0

    def fetch(self, tokens: Sequence[int], namespace: Namespace, beyond: int) -> bool:
        """Bring back from the shelf what it has of a prompt, if that is more than `beyond` tokens by a margin."""
        length, entry = self.shelf.find(tokens, namespace)
        length = border(tokens, min(length, len(tokens) - 1)) if self.divisible else length
        if entry is None or length < beyond + FETCH_GAIN or length >= len(tokens):
            return False
        if not self.make_room(length) or self.cells.free < max(len(link.tokens) for link in self.shelf.chain(entry)):
            return False
        sequence = self.begin(tokens[:length], namespace)
        if not self._restore(sequence, entry, length):
            self._memory.drop(sequence)
            self.drop(sequence)
            self.shelf.remove(entry)
            return False
        self.cells.append(sequence, length)
        self._idle[sequence] = None
        return True

    def _restore(self, sequence: int, entry: Entry, length: int) -> bool:
        """Put the first `length` tokens of an entry into the cache."""
        for link, following in itertools.zip_longest(self.shelf.chain(entry), self.shelf.chain(entry)[1:]):
            target = sequence if link.start == 0 else self._scratch
            try:
                restored = self._memory.restore(target, link.read())
            except StateLost:
                restored = False
            if not restored:
                self._memory.drop(self._scratch)
                return False
            if target == self._scratch:
                self._memory.share_from(self._scratch, sequence, position(link.tokens, link.start))
                self._memory.drop(self._scratch)
            wanted = min(following.start if following else length, length)
            if wanted < len(link.tokens):
                self._memory.truncate(sequence, position(link.tokens, wanted))
        return True

    def keep(self, sequence: int, tokens: Sequence[int]) -> None:
        """Put a copy of what a sequence has in the cache on the shelf; `tokens` are those.

        Not of one that was put together: nobody would find it there.
        """
        if self.shelf.budget and _MOVED not in self._namespaces[sequence]:
            self.shelf.put(tokens, self._namespaces[sequence], lambda start: self._save(sequence, start))

    def _save(self, sequence: int, start: int) -> bytes:
        if start == 0:
            return self._memory.save(sequence)
        self._memory.share_from(sequence, self._scratch, self._position(sequence, start))
        state = self._memory.save(self._scratch)
        self._memory.drop(self._scratch)
        return state

    def shelve_idle(self) -> None:
        """Put a copy of every idle sequence on the shelf, the newest last."""
        for sequence in list(self._idle):
            self.keep(sequence, self.tokens(sequence))

    def export(self, tokens: Sequence[int], namespace: Namespace) -> tuple[int, bytes]:
        """How many tokens of a sequence are at hand, in the cache or on the shelf, and their state."""
        probe = [*tokens, -1]  # one token more, so that the whole of `tokens` may match
        match = self.match(probe, namespace)
        if self.fetch(probe, namespace, match.length):
            match = self.match(probe, namespace)
        if not match.length:
            return 0, b""
        sequence = self.begin(tokens[: match.length], namespace)
        self.adopt(sequence, match)
        state = self._memory.save(sequence)
        self.settle(sequence, tokens[: match.length])
        return match.length, state

    def import_state(self, tokens: Sequence[int], namespace: Namespace, state: bytes) -> bool:
        """Take a saved sequence in as an idle one; False if there is no room or the state is of no use here."""
        if not self.make_room(len(tokens)):
            return False
        sequence = self.begin(tokens, namespace)
        if not self._memory.restore(sequence, state):
            self.drop(sequence)
            return False
        self.cells.append(sequence, len(tokens))
        self.settle(sequence, tokens)
        return True

    def erase(self, tokens: Sequence[int], namespace: Namespace) -> list[Entry]:
        """Forget every idle sequence and kept state that is a prefix of `tokens`, or continues them.

        Returns the kept states.
        """
        for sequence in self.idle_sequences:
            if self._namespaces[sequence] == namespace and _same_beginning(self.tokens(sequence), tokens):
                self.drop(sequence)
        erased = [e for e in self.shelf if e.namespace == namespace and _same_beginning(e.tokens, tokens)]
        for entry in erased:
            self.shelf.remove(entry)
        return erased

    def trim(self) -> None:
        """Move idle sequences to the shelf, least recently used first, until few enough of their cells are left."""
        running = [sequence for sequence in self._namespaces if sequence not in self._idle]
        while self._idle and self.cells.used - self.cells.held_by(running) > self._idle_cells:
            self.drop_idle()

    def begin(self, tokens: Sequence[int], namespace: Namespace) -> int:
        """A sequence id for a prompt that will now be decoded; drops the least recently used one if none is free.

        The caller runs no more sequences at once than there are ids.
        """
        if not self._free_ids:
            self.drop_idle()
        sequence = self._free_ids.pop()
        self._namespaces[sequence] = namespace
        self._tree.insert(sequence, tokens, namespace)
        return sequence

    def adopt(self, sequence: int, match: Match) -> None:
        """Let a new sequence begin with a matched prefix."""
        if not match.length:
            return
        if self.divisible:
            self._memory.share(match.source, sequence, self._position(sequence, match.length))
        else:
            self._memory.share_all(match.source, sequence)
        self.cells.share(match.source, sequence, match.length)
        self._touch(match.source)

    def grew(self, sequence: int, count: int) -> None:
        """`count` more tokens of a sequence have been decoded."""
        self.cells.append(sequence, count)

    def cut(self, sequence: int, length: int) -> bool:
        """Drop what a running sequence has from `length` on; False if its state cannot be cut there."""
        if not self._memory.truncate(sequence, self._position(sequence, length)):
            return False
        self.cells.truncate(sequence, length)
        return True

    def reuse(self, sequence: int, prompt: Sequence[int], match: Match, least: int) -> int:
        """As `adopt`, and more of the prompt from an idle sequence that has parts of it elsewhere, which is used up.

        Parts have `least` tokens or more. They are moved together, though their values were computed with what stood
        between them in sight: from here on only those who ask for the same may use them. Returns the prefix's length.
        """
        donor, start, chunks = self._donor(prompt, self._namespaces[sequence], match, least)
        if not chunks:
            self.adopt(sequence, match)
            return match.length
        if start:
            self.adopt(sequence, match)
        self._memory.share_from(donor, sequence, start)
        self.cells.hand_over(donor, sequence, start)
        self.drop(donor)
        at = end = start
        for where, length in chunks:
            if gap := where - at:
                self._memory.shift(sequence, end, end + gap)
                self.cells.remove(sequence, end, end + gap)
            at = where + length
            end += length
        self._memory.truncate(sequence, end)
        self.cells.truncate(sequence, end)
        self._namespaces[sequence] = moved(self._namespaces[sequence])
        self._tree.insert(sequence, prompt, self._namespaces[sequence])
        return end

    def _donor(
        self, prompt: Sequence[int], namespace: Namespace, match: Match, least: int
    ) -> tuple[int, int, list[Chunk]]:
        """The idle sequence that has most of a prompt beyond its prefix, from where on, and what.

        That may be the prefix's source, or one of the last few, also of those that were put together themselves.
        """
        kin = [s for s in self._idle if moved(self._namespaces[s]) == moved(namespace)]
        best: tuple[int, int, list[Chunk]] = (-1, 0, [])
        most = match.length
        for donor in kin[-DONORS:]:
            cached = self.tokens(donor)[: self.decoded(donor)]
            start = match.length if donor == match.source else 0
            if not self.cells.owns_from(donor, start) or any(map(is_media, cached)):
                continue
            chunks = reusable_chunks(cached, prompt, start, least)
            total = start + sum(length for _, length in chunks)
            if total > most:
                most, best = total, (donor, start, chunks)
        return best

    def shift(self, sequence: int, start: int, stop: int) -> None:
        """Remove a range of a running sequence's tokens and move the rest down; the range and the rest are not shared.

        What was computed with the range in sight is of no use to other prompts: only the part before it stays known.
        """
        kept = self.tokens(sequence)[:start]
        self._memory.shift(sequence, start, stop)
        self.cells.remove(sequence, start, stop)
        self._tree.insert(sequence, kept, self._namespaces[sequence])

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

    def _drop_covered(self, sequence: int, tokens: Sequence[int], namespace: Namespace) -> None:
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
        sequence = next(iter(self._idle))
        self.keep(sequence, self.tokens(sequence))
        self.drop(sequence)
        return True

    def make_room(self, count: int) -> bool:
        """Free cells until `count` are free, least recently used idle sequences first; False if that cannot be done."""
        while self.cells.free < count:
            if not self.drop_idle():
                return False
        return True

    def clear(self) -> None:
        """Forget every idle sequence and all that was kept."""
        while self._idle:
            self.drop(next(iter(self._idle)))
        self.shelf.clear()

    def _position(self, sequence: int, length: int) -> int:
        """Where the token behind the first `length` of a sequence is; what is generated is text."""
        tokens = self._tree.tokens(sequence)
        known = min(length, len(tokens))
        return position(tokens, known) + length - known

    def _touch(self, sequence: int) -> None:
        if sequence in self._idle:
            del self._idle[sequence]
            self._idle[sequence] = None


def moved(namespace: Namespace) -> Namespace:
    """The namespace of sequences that were put together from those of another."""
    return namespace if _MOVED in namespace else (*namespace, _MOVED)


def _same_beginning(left: Sequence[int], right: Sequence[int]) -> bool:
    """Whether one is a prefix of the other."""
    length = min(len(left), len(right))
    return list(left[:length]) == list(right[:length])

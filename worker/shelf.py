"""States of sequences kept outside of the KV cache: shared prefixes once, tails alone, within a budget of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from worker.prefix import RadixTree

Namespace = tuple[tuple[int, float], ...]
"""What a state depends on besides its tokens: the adapters and their scales."""

LEAST_TAIL = 32
"""Tokens below which a tail is not worth keeping: computing it again is as quick."""


class StateLost(Exception):
    """A state that cannot be read any longer: it is computed again."""


@dataclass(frozen=True, slots=True)
class Entry:
    """Tokens and the state of those from `start` on; the ones before are in `parent`.

    `state` is in memory, or is read each time it is needed.
    """

    number: int
    tokens: tuple[int, ...]
    namespace: Namespace
    start: int
    parent: Entry | None
    state: bytes | Callable[[], bytes]

    @property
    def n_bytes(self) -> int:
        """Bytes of memory."""
        return 4 * len(self.tokens) + (len(self.state) if isinstance(self.state, bytes) else 0)

    def read(self) -> bytes:
        return self.state if isinstance(self.state, bytes) else self.state()


class Shelf:
    """`divisible` says that a state can be cut anywhere; otherwise each entry stands for itself and is used whole."""

    def __init__(self, budget: int, divisible: bool = True) -> None:
        self.budget = budget
        self.n_bytes = 0
        self._divisible = divisible
        self._entries: dict[int, Entry] = {}
        """Least recently used first."""
        self._children: dict[int, int] = {}
        self._tree = RadixTree()
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        """Parents before their children, otherwise least recently used first."""
        seen: set[int] = set()
        for entry in self._entries.values():
            chain: list[Entry] = []
            link: Entry | None = entry
            while link is not None and link.number not in seen:
                chain.append(link)
                seen.add(link.number)
                link = link.parent
            yield from reversed(chain)

    def find(self, tokens: Sequence[int], namespace: Namespace) -> tuple[int, Entry | None]:
        """The entry with the longest usable prefix of `tokens`, and its length."""

        def usable(number: int, common: int) -> int:
            whole = len(self._entries[number].tokens)
            return common if self._divisible else whole if whole <= common else 0

        length, number = self._tree.longest(tokens, usable, namespace)
        if number < 0:
            return 0, None
        self._touch(number)
        return length, self._entries[number]

    def put(self, tokens: Sequence[int], namespace: Namespace, save: Callable[[int], bytes]) -> Entry | None:
        """Keep a sequence; `save(start)` gives the state of its tokens from `start` on. None if it is not worth it."""
        start, parent = self.find(tokens, namespace)
        if start == len(tokens):
            return parent
        if not self._divisible or start < LEAST_TAIL:
            start, parent = 0, None
        if len(tokens) - start < LEAST_TAIL:
            return None
        state = save(start)
        return self.add(tuple(tokens), namespace, start, parent, state)

    def add(
        self,
        tokens: tuple[int, ...],
        namespace: Namespace,
        start: int,
        parent: Entry | None,
        state: bytes | Callable[[], bytes],
    ) -> Entry | None:
        """Keep a state that exists already; None if it is larger than the budget."""
        entry = Entry(self._next, tokens, namespace, start, parent, state)
        if not self._make_room(entry.n_bytes, parent):
            return None
        self._next += 1
        self._entries[entry.number] = entry
        self._tree.insert(entry.number, tokens, namespace)
        self.n_bytes += entry.n_bytes
        if parent is not None:
            self._children[parent.number] = self._children.get(parent.number, 0) + 1
        return entry

    def chain(self, entry: Entry) -> list[Entry]:
        """An entry behind all that it builds on."""
        links: list[Entry] = []
        link: Entry | None = entry
        while link is not None:
            links.append(link)
            link = link.parent
        return links[::-1]

    def remove(self, entry: Entry) -> None:
        """Forget an entry and all that builds on it."""
        for other in [other for other in self._entries.values() if other.parent is entry]:
            self.remove(other)
        if self._entries.pop(entry.number, None) is None:
            return
        self._tree.remove(entry.number)
        self.n_bytes -= entry.n_bytes
        if entry.parent is not None:
            self._children[entry.parent.number] -= 1
        self._children.pop(entry.number, None)

    def clear(self) -> None:
        for entry in list(self._entries.values()):
            self.remove(entry)

    def _make_room(self, n_bytes: int, needed: Entry | None) -> bool:
        if n_bytes > self.budget:
            return False
        kept = {link.number for link in self.chain(needed)} if needed is not None else set()
        while self.n_bytes + n_bytes > self.budget:
            oldest = next(
                (e for e in self._entries.values() if not self._children.get(e.number) and e.number not in kept), None
            )
            if oldest is None:
                return False
            self.remove(oldest)
        return True

    def _touch(self, number: int) -> None:
        self._entries[number] = self._entries.pop(number)

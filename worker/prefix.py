"""A radix tree over the token sequences in the KV cache: which of them shares how long a prefix with a prompt."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]


class _Node:
    """A run of tokens behind its parent's; `passing` are the sequences that contain the run's first token here."""

    __slots__ = ("children", "parent", "passing", "run")

    def __init__(self, run: Tokens, parent: _Node | None, passing: set[int]) -> None:
        self.run = run
        self.parent = parent
        self.passing = passing
        self.children: dict[int, _Node] = {}


class RadixTree:
    """Sequences by their tokens. A sequence belongs to one namespace (whatever else its KV depends on)."""

    def __init__(self) -> None:
        self._roots: dict[Hashable, _Node] = {}
        self._sequences: dict[int, tuple[Hashable, Tokens]] = {}

    def __contains__(self, sequence: int) -> bool:
        return sequence in self._sequences

    def __len__(self) -> int:
        return len(self._sequences)

    def tokens(self, sequence: int) -> Tokens:
        return self._sequences[sequence][1]

    def insert(self, sequence: int, tokens: Sequence[int] | Tokens, namespace: Hashable = None) -> None:
        """Add a sequence, in place of what it was before."""
        self.remove(sequence)
        array = np.asarray(tokens, np.int32)
        self._sequences[sequence] = (namespace, array)
        node = self._roots.setdefault(namespace, _Node(array[:0], None, set()))
        node.passing.add(sequence)
        position = 0
        while position < len(array):
            child = node.children.get(int(array[position]))
            if child is None:
                child = _Node(array[position:], node, {sequence})
                node.children[int(array[position])] = child
                return
            common = _common(child.run, array[position:])
            if common < len(child.run):
                child = _split(child, common)
            child.passing.add(sequence)
            position += common
            node = child

    def remove(self, sequence: int) -> None:
        """Take a sequence out, if it is there."""
        known = self._sequences.pop(sequence, None)
        if known is None:
            return
        namespace, array = known
        node: _Node | None = self._roots[namespace]
        position = 0
        while node is not None:
            node.passing.discard(sequence)
            if not node.passing:
                if node.parent is None:
                    del self._roots[namespace]
                else:
                    del node.parent.children[int(node.run[0])]
                return  # nobody else passes below either
            position += len(node.run)
            node = node.children.get(int(array[position])) if position < len(array) else None

    def clear(self) -> None:
        self._roots.clear()
        self._sequences.clear()

    def longest(
        self,
        tokens: Sequence[int] | Tokens,
        usable: Callable[[int, int], int],
        namespace: Hashable = None,
    ) -> tuple[int, int]:
        """The longest usable prefix of `tokens` and the sequence that has it; (0, -1) if there is none.

        `usable(sequence, common)` says how many of the `common` tokens that a sequence shares can be used.
        """
        best, holder = 0, -1
        array = np.asarray(tokens, np.int32)
        for sequence, common in self._common_prefixes(array, namespace).items():
            length = usable(sequence, common)
            if length > best or (length == best and length > 0 and sequence > holder):
                best, holder = length, sequence
        return best, holder

    def _common_prefixes(self, array: Tokens, namespace: Hashable) -> dict[int, int]:
        """Tokens that each sequence shares with `array` from the beginning."""
        common: dict[int, int] = {}
        node = self._roots.get(namespace)
        position = 0
        while node is not None and position < len(array):
            child = node.children.get(int(array[position]))
            if child is None:
                break
            matched = _common(child.run, array[position:])
            position += matched
            for sequence in child.passing:
                common[sequence] = position
            if matched < len(child.run):
                break
            node = child
        return common


def _common(left: Tokens, right: Tokens) -> int:
    """Length of the common beginning of two runs."""
    length = min(len(left), len(right))
    differing = np.flatnonzero(left[:length] != right[:length])
    return int(differing[0]) if differing.size else length


def _split(node: _Node, at: int) -> _Node:
    """Cut a node's run in two; the new node that holds the front."""
    parent = node.parent
    assert parent is not None, "the root has no run to cut"
    front = _Node(node.run[:at], parent, set(node.passing))
    parent.children[int(front.run[0])] = front
    node.run = node.run[at:]
    node.parent = front
    front.children[int(node.run[0])] = node
    return front

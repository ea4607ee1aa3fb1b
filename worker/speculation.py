"""Speculative decoding: guesses at the tokens to come, checked in one step, made only where they pay."""

from __future__ import annotations

from collections.abc import Sequence as Tokens
from typing import Protocol

from worker.sequence import Sequence
from worker.step_cost import StepCost

LONGEST_GRAM = 4
SHORTEST_GRAM = 2
HOPE = 0.7
"""The share of guesses expected to be right before any was checked."""
_WEIGHT = 0.15
RETRY_AFTER = 64
"""Tokens after which a sequence whose guesses did not pay may try again."""


class Acceptance:
    """How often the guesses for one sequence were right, and whether another is worth its cost."""

    def __init__(self) -> None:
        self.rate = HOPE
        self._paused_at = -1

    def checked(self, n_drafted: int, n_accepted: int) -> None:
        self.rate += _WEIGHT * (n_accepted / n_drafted - self.rate)

    def pays(self, token_ms: float, draft_ms: float, n_generated: int) -> bool:
        """A right guess saves `token_ms`, any guess costs `draft_ms`."""
        if self.rate * token_ms > draft_ms:
            return True
        if self._paused_at < 0:
            self._paused_at = n_generated
        elif n_generated - self._paused_at >= RETRY_AFTER:
            self._paused_at = -1
            self.rate = HOPE
        return False


class Proposer(Protocol):
    """Makes guesses, without asking whether they pay."""

    def propose(self, sequence: Sequence, n_max: int) -> list[int]: ...

    def forget(self, sequence: Sequence) -> None: ...


class Drafter:
    """Asks a proposer for the sequences whose guesses pay. `n_min` guesses at least, or none."""

    def __init__(self, proposer: Proposer, n_max: int, n_min: int) -> None:
        self._proposer = proposer
        self._n_max = n_max
        self._n_min = max(1, n_min)
        self._acceptance: dict[Sequence, Acceptance] = {}

    def propose(self, sequences: list[Sequence], cost: StepCost) -> list[list[int]]:
        """A draft for each sequence, empty for none."""
        token_ms = cost.decoding_ms(len(sequences)) / max(1, len(sequences))
        draft_ms = cost.draft_ms
        drafts = []
        for sequence in sequences:
            acceptance = self._acceptance.setdefault(sequence, Acceptance())
            room = min(self._n_max, sequence.limit - sequence.n_generated - 1)
            draft: list[int] = []
            if (
                sequence.media is None
                and room >= self._n_min
                and acceptance.pays(token_ms, draft_ms, sequence.n_generated)
            ):
                draft = self._proposer.propose(sequence, room)
            drafts.append(draft if len(draft) >= self._n_min else [])
        return drafts

    def checked(self, sequence: Sequence, n_drafted: int, n_accepted: int) -> None:
        if n_drafted:
            self._acceptance[sequence].checked(n_drafted, n_accepted)

    def forget(self, sequence: Sequence) -> None:
        self._acceptance.pop(sequence, None)
        self._proposer.forget(sequence)


class PromptLookup:
    """Guesses that a text goes on as it did where its last few tokens stood before."""

    def __init__(self) -> None:
        self._indexes: dict[Sequence, _GramIndex] = {}

    def propose(self, sequence: Sequence, n_max: int) -> list[int]:
        index = self._indexes.setdefault(sequence, _GramIndex())
        index.extend(sequence.tokens)
        return index.continuation(sequence.tokens, n_max)

    def forget(self, sequence: Sequence) -> None:
        self._indexes.pop(sequence, None)


class _GramIndex:
    """Where each run of a few tokens of one sequence was last followed by something."""

    def __init__(self) -> None:
        self._behind: dict[tuple[int, ...], int] = {}
        self._length = 0

    def extend(self, tokens: Tokens[int]) -> None:
        """Take in the tokens that are new; the last one is followed by nothing yet."""
        if len(tokens) < self._length:
            self._behind.clear()
            self._length = 0
        for end in range(max(self._length, SHORTEST_GRAM), len(tokens)):
            for size in range(SHORTEST_GRAM, LONGEST_GRAM + 1):
                if end >= size:
                    self._behind[tuple(tokens[end - size : end])] = end
        self._length = len(tokens)

    def continuation(self, tokens: Tokens[int], n_max: int) -> list[int]:
        for size in range(LONGEST_GRAM, SHORTEST_GRAM - 1, -1):
            if len(tokens) < size:
                continue
            at = self._behind.get(tuple(tokens[-size:]))
            if at is not None:
                return list(tokens[at : at + n_max])
        return []

"""How many tokens a model may reason, and how its reasoning is brought to an end."""

from __future__ import annotations

import enum
from collections.abc import Sequence


class BudgetState(enum.Enum):
    """Where a sequence stands: before its reasoning, in it, being led out of it, or behind it."""

    IDLE = "idle"
    COUNTING = "counting"
    FORCING = "forcing"
    DONE = "done"


_MAX_CHARACTER_BYTES = 4


class ReasoningBudget:
    """Counts the tokens of one sequence's reasoning. Pure; used by one thread at a time.

    `starts` and `ends` are the bytes of the tags. `forced` are the tokens that end the reasoning: an optional message
    and the end tag. `limit` is in tokens, -1 for none: then only `end_now` ends it. `is_open` says that the prompt ends
    inside of reasoning. Each further reasoning of one answer gets the full limit again.
    """

    def __init__(
        self, starts: Sequence[bytes], ends: Sequence[bytes], forced: Sequence[int], limit: int, is_open: bool
    ) -> None:
        self._starts, self._ends = tuple(starts), tuple(ends)
        self._forced = tuple(forced)
        self._limit = limit
        self._left = limit
        self._position = 0
        self._tail = b""
        self._wanted = False
        self._keep = max(map(len, (*self._starts, *self._ends)), default=1) + _MAX_CHARACTER_BYTES
        self.state = BudgetState.IDLE
        if is_open:
            self._begin()

    def forced_token(self) -> int | None:
        """The token that must come next, None if the model chooses."""
        return self._forced[self._position] if self.state is BudgetState.FORCING else None

    def accept(self, token: int, piece: bytes) -> None:
        """Go on behind a token and its bytes, forced ones too."""
        if self.state is BudgetState.FORCING:
            self._position += 1
            if self._position >= len(self._forced):
                self.state, self._tail = BudgetState.DONE, b""
            return
        self._tail = (self._tail + piece)[-self._keep :]
        if self.state is BudgetState.COUNTING:
            self._count()
        elif any(start in self._tail for start in self._starts):
            self._begin()

    def end_now(self) -> bool:
        """End a reasoning that is going on; False if there is none."""
        if self.state is not BudgetState.COUNTING:
            return False
        self._wanted = True
        self._force_at_boundary()
        return True

    def _begin(self) -> None:
        self.state, self._left, self._tail, self._wanted = BudgetState.COUNTING, self._limit, b"", False
        if self._limit == 0:
            self._wanted = True
            self._force_at_boundary()

    def _count(self) -> None:
        if any(end in self._tail for end in self._ends):
            self.state, self._tail = BudgetState.DONE, b""
            return
        if self._left > 0:
            self._left -= 1
            self._wanted = self._wanted or self._left == 0
        if self._wanted:
            self._force_at_boundary()

    def _force_at_boundary(self) -> None:
        """Never in the middle of a character that takes several tokens."""
        if self._forced and _ends_on_boundary(self._tail):
            self.state, self._position, self._tail = BudgetState.FORCING, 0, b""


def _ends_on_boundary(data: bytes) -> bool:
    """Whether `data` ends with a whole UTF-8 character, or with what can never become one."""
    for size in range(1, min(_MAX_CHARACTER_BYTES, len(data)) + 1):
        byte = data[-size]
        if byte & 0xC0 == 0x80:
            continue
        length = 1 if byte < 0x80 else 2 if byte >> 5 == 6 else 3 if byte >> 4 == 14 else 4 if byte >> 3 == 30 else 1
        return size >= length
    return True

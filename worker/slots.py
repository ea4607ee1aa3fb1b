"""The slots: how many sequences run at once, and which request is in which."""

from __future__ import annotations

from collections.abc import Iterator

from protocol.status import SlotStatus
from worker.sequence import Phase, Sequence


class SlotTable:
    """A slot holds one running sequence, or nothing."""

    def __init__(self, count: int) -> None:
        self._slots: list[Sequence | None] = [None] * count

    def __len__(self) -> int:
        return len(self._slots)

    def __iter__(self) -> Iterator[Sequence]:
        """The running sequences."""
        return (sequence for sequence in self._slots if sequence is not None)

    @property
    def busy(self) -> int:
        return sum(sequence is not None for sequence in self._slots)

    def free(self, wanted: int = -1) -> int:
        """A free slot, -1 if there is none; `wanted` asks for one slot and no other."""
        if wanted >= 0:
            return wanted if self._slots[wanted] is None else -1
        return next((index for index, sequence in enumerate(self._slots) if sequence is None), -1)

    def put(self, slot: int, sequence: Sequence) -> None:
        if self._slots[slot] is not None:
            raise ValueError(f"slot {slot} is taken")
        self._slots[slot] = sequence
        sequence.slot = slot

    def clear(self, sequence: Sequence) -> None:
        if self._slots[sequence.slot] is not sequence:
            raise ValueError(f"slot {sequence.slot} holds another sequence")
        self._slots[sequence.slot] = None

    def by_id(self, sequence_id: int) -> Sequence | None:
        return next((sequence for sequence in self if sequence.id == sequence_id), None)

    def status(self) -> tuple[SlotStatus, ...]:
        return tuple(_status(index, sequence) for index, sequence in enumerate(self._slots))


def _status(index: int, sequence: Sequence | None) -> SlotStatus:
    if sequence is None:
        return SlotStatus(index, "idle")
    prefill = sequence.phase is not Phase.DECODE
    return SlotStatus(
        id=index,
        state={Phase.PREFILL: "prefill", Phase.DECODE: "decode"}.get(sequence.phase, "parked"),
        request=sequence.request,
        n_prompt=sequence.n_prompt,
        n_prompt_cached=sequence.n_cached,
        n_prompt_done=min(sequence.n_past, sequence.n_prompt) if prefill else sequence.n_prompt,
        n_decoded=sequence.n_generated,
        n_limit=sequence.limit,
    )

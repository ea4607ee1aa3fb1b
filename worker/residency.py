"""Which sequences are in a slot, and what they have in the cache: admission, sharing, parking, release."""

from __future__ import annotations

from collections.abc import Callable

from worker.kv_cache import KvCache, Match
from worker.llama_context import EngineFailure
from worker.media_tokens import border
from worker.sequence import Phase, Sequence
from worker.slot_files import SlotFiles
from worker.slots import SlotTable
from worker.tally import Tally

SHARE_GAIN = 16
"""Tokens that waiting for another prompt must save."""
SNAPSHOT_LEAST = 64
"""Shortest prompt whose state is kept where only whole sequences can be shared."""
RESUME_ROOM = 64
"""Cells beyond its own tokens that must be free before a parked sequence goes on."""


class Residency:
    """`changed` says that slots have changed since the owner last looked."""

    def __init__(
        self,
        slots: SlotTable,
        cache: KvCache,
        slot_files: SlotFiles,
        tally: Tally,
        clock: Callable[[], float],
        share_prompts: bool,
    ) -> None:
        self.slots = slots
        self.cache = cache
        self.changed = False
        self._slot_files = slot_files
        self._tally = tally
        self._clock = clock
        self._share_prompts = share_prompts
        self._waiting: list[Sequence] = []

    def enqueue(self, sequences: list[Sequence]) -> None:
        self._waiting += sequences

    def admit(self) -> None:
        """Give free slots to waiting sequences in the order in which they came, and let a parked one go on."""
        for sequence in list(self._waiting):
            slot = self.slots.free(sequence.prepared.message.slot)
            if slot >= 0:
                self._waiting.remove(sequence)
                self.slots.put(slot, sequence)
                sequence.phase = Phase.PREFILL
                self.changed = True
            elif self.slots.free() < 0:
                break
        self._resume_parked()

    def _resume_parked(self) -> None:
        """The oldest parked sequence goes on once its tokens fit."""
        parked = [sequence for sequence in self.slots if sequence.phase is Phase.PARKED]
        if not parked:
            return
        running = [sequence.id for sequence in self.slots if sequence.id >= 0]
        free = self.cache.cells.total - self.cache.cells.held_by(running)
        oldest = min(parked, key=lambda sequence: sequence.arrived)
        if not running or free >= len(oldest.tokens) + RESUME_ROOM:
            oldest.phase = Phase.PREFILL
            self.changed = True

    def decoding(self) -> list[Sequence]:
        return [sequence for sequence in self.slots if sequence.phase is Phase.DECODE]

    def prompts(self) -> list[Sequence]:
        """Prompts that may be decoded now, each with its cached prefix in place."""
        return [
            sequence
            for sequence in self.slots
            if sequence.phase is Phase.PREFILL and not sequence.blocked and (sequence.id >= 0 or self._begin(sequence))
        ]

    def _begin(self, sequence: Sequence) -> bool:
        """Give a sequence its place in the cache; False if it had better wait for another's tokens."""
        match = Match()
        if sequence.prepared.message.cache_prompt and self._share_prompts:
            match = self._match(sequence)
            if self._should_wait(sequence, match):
                return False
        sequence.waits_for = None
        sequence.id = self.cache.begin(sequence.tokens, sequence.namespace)
        length = self._adopt(sequence, match)
        self.cache.trim()
        sequence.n_past = sequence.n_skipped = length
        if not sequence.began:
            sequence.began = self._clock()
            sequence.n_cached = min(length, sequence.n_prompt)
            self._tally.cached += sequence.n_cached
        if self._ends_before_last(sequence):
            sequence.borders.add(border(sequence.tokens, len(sequence.tokens) - 1))
        self.changed = True
        return True

    def _adopt(self, sequence: Sequence, match: Match) -> int:
        """Take over what the cache has of a prompt; its length."""
        message = sequence.prepared.message
        wants_more = message.cache_prompt and message.cache_reuse > 0 and self._share_prompts
        if wants_more and self.cache.movable and sequence.media is None:
            return self.cache.reuse(sequence.id, sequence.tokens, match, message.cache_reuse)
        self.cache.adopt(sequence.id, match)
        return match.length

    def _ends_before_last(self, sequence: Sequence) -> bool:
        """Whether the last token of a prompt is computed alone.

        There a state that cannot be cut is copied. And where the same request must give the same text, its last token
        is computed the same way whether the tokens before it come from the cache or not: the last bits of its logits
        would differ otherwise.
        """
        message = sequence.prepared.message
        if not message.cache_prompt:
            return False
        if not self.cache.divisible:
            return len(sequence.tokens) >= SNAPSHOT_LEAST
        return message.sampling.seed is not None or message.sampling.temperature <= 0

    def _match(self, sequence: Sequence) -> Match:
        match = self.cache.match(sequence.tokens, sequence.namespace, SHARE_GAIN)
        if match.promiser < 0 and self.cache.fetch(sequence.tokens, sequence.namespace, match.length):
            match = self.cache.match(sequence.tokens, sequence.namespace, SHARE_GAIN)
        return match

    def _should_wait(self, sequence: Sequence, match: Match) -> bool:
        """Whether a running prompt is about to compute tokens that this one would compute too."""
        promiser = self.slots.by_id(match.promiser) if match.promiser >= 0 else None
        if promiser is None or promiser.phase is not Phase.PREFILL or promiser.n_past >= match.promised:
            return False
        # The other ends a step there: nobody waits for more than is shared, and an indivisible state is copied there.
        promiser.borders.add(match.promised)
        sequence.waits_for, sequence.waits_until = promiser, match.promised
        return True

    def advance(self, sequence: Sequence, count: int) -> None:
        """`count` more tokens of a sequence are in the cache."""
        sequence.n_past += count
        self.cache.grew(sequence.id, count)
        if sequence.n_past in sequence.borders:
            sequence.borders.discard(sequence.n_past)
            if not self.cache.divisible:
                self.cache.snapshot(sequence.id, sequence.tokens[: sequence.n_past])

    def recount(self, sequence: Sequence, decoded: int) -> None:
        """After a step that was ended early: `decoded` tokens are in the engine's cache."""
        if sequence.media is not None:
            decoded = border(sequence.tokens, sequence.n_past)  # positions do not tell how much of a chunk is there
        decoded = min(decoded, len(sequence.tokens) - 1)
        if not self.cache.divisible:
            self.restart(sequence)  # its state cannot be cut back to a known point
            return
        if decoded > sequence.n_past:
            self.cache.grew(sequence.id, decoded - sequence.n_past)
        sequence.n_past = decoded
        self.cache.cut(sequence.id, decoded)

    def restart(self, sequence: Sequence) -> None:
        """Compute a sequence anew, from whatever prefix the cache still has."""
        self.cache.drop(sequence.id)
        sequence.id = -1
        sequence.n_past = sequence.n_skipped = 0
        sequence.borders.clear()
        sequence.phase = Phase.PREFILL

    def park_youngest(self) -> None:
        """Let the newest running sequence go; it goes on from its tokens once there is room again."""
        running = [sequence for sequence in self.slots if sequence.id >= 0]
        if not running:
            raise EngineFailure("the KV cache is full although nothing runs")
        youngest = max(running, key=lambda sequence: sequence.arrived)
        self.restart(youngest)
        youngest.phase = Phase.PARKED
        self._tally.parked += 1
        self.changed = True

    def _settled_length(self, sequence: Sequence) -> int:
        """Tokens of an ended sequence that may be shared: not a part of an image."""
        length = border(sequence.tokens, sequence.n_past)
        return length if length == sequence.n_past or self.cache.cut(sequence.id, length) else 0

    def release(self, sequence: Sequence) -> None:
        """Free a sequence's slot and sampler; what it has decoded stays, unless that was not wanted or is of no use."""
        sequence.sampler.close()
        if sequence.phase is Phase.WAITING:
            self._waiting.remove(sequence)
            sequence.phase = Phase.ENDED
            return
        if sequence.id >= 0:
            if sequence.shifted or not sequence.prepared.message.cache_prompt:
                self.cache.drop(sequence.id)
            else:
                tokens = sequence.tokens[: self._settled_length(sequence)]
                self._slot_files.last[sequence.slot] = (tuple(tokens), self.cache.namespace(sequence.id))
                self.cache.settle(sequence.id, tokens)
            sequence.id = -1
        self.slots.clear(sequence)
        sequence.phase = Phase.ENDED
        self.changed = True
        if self.slots.busy:
            self.cache.trim()

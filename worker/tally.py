"""The worker's counters: totals that never fall."""

from __future__ import annotations

from protocol.status import Counters


class Tally:
    """Counted on the decode thread; `counters` may be read on any."""

    def __init__(self) -> None:
        self.steps = 0
        self.cached = 0
        self.parked = 0
        self.cancelled = 0
        self.drafts = 0
        self.draft_tokens = 0
        self.draft_accepted = 0
        self.predicted = 0
        self._prompt = 0
        self._prompt_ms = 0.0
        self._predicted_ms = 0.0
        self._busy = 0
        self._most_cells = 0

    def step(self, n_sequences: int, n_decoding: int, n_prompt: int, ms: float, cells: int) -> None:
        """A step has been computed: `n_decoding` single tokens and `n_prompt` prompt tokens in `ms`."""
        self.steps += 1
        self._busy += n_sequences
        self._prompt += n_prompt
        self._most_cells = max(self._most_cells, cells)
        # A step that does both is charged by the tokens of each kind.
        share = n_prompt / max(1, n_prompt + n_decoding)
        self._prompt_ms += ms * share
        self._predicted_ms += ms * (1 - share)

    def counters(self) -> Counters:
        return Counters(
            prompt_tokens=self._prompt,
            prompt_tokens_cached=self.cached,
            prompt_seconds=self._prompt_ms / 1000,
            predicted_tokens=self.predicted,
            predicted_seconds=self._predicted_ms / 1000,
            decode_steps=self.steps,
            busy_slots=self._busy,
            tokens_max=self._most_cells,
            draft_tokens=self.draft_tokens,
            draft_accepted=self.draft_accepted,
            drafts=self.drafts,
            parked=self.parked,
            cancelled=self.cancelled,
        )

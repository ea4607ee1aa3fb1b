"""What a decode step costs, learned while running: how long a prompt chunk beside decoding sequences may be."""

from __future__ import annotations

import math

_WEIGHT = 0.2
"""Weight of the newest measurement in a running mean."""
_GUESS_MS = 4.0
"""Milliseconds per prompt token before anything was measured."""
MIN_CHUNK = 8
MIN_PROMPT_SHARE = 0.5
"""Where decoding alone takes more than the budget, prompts still get this share of its time on top."""
ALONE_FACTOR = 10
"""With nothing decoding a step may take this many budgets: whoever arrives meanwhile waits for its end."""


class StepCost:
    """Running means of step times, in milliseconds."""

    def __init__(self) -> None:
        self._decoding: dict[int, float] = {}
        self._beside = math.nan
        self._alone = math.nan

    def observe(self, n_decoding: int, n_prompt: int, ms: float) -> None:
        """A step with `n_decoding` single tokens and `n_prompt` prompt tokens took `ms`."""
        if n_prompt == 0:
            known = self._decoding.get(n_decoding, math.nan)
            self._decoding[n_decoding] = _mean(known, ms)
        elif n_decoding == 0:
            if n_prompt >= MIN_CHUNK:
                self._alone = _mean(self._alone, ms / n_prompt)
        else:
            added = max(ms - self.decoding_ms(n_decoding), 0.1 * ms)
            self._beside = _mean(self._beside, added / n_prompt)

    def decoding_ms(self, n_decoding: int) -> float:
        """Expected time of a step without prompt tokens; from the nearest number of sequences that was seen."""
        if not self._decoding or n_decoding == 0:
            return 0.0
        nearest = min(self._decoding, key=lambda n: abs(n - n_decoding))
        return self._decoding[nearest]

    @property
    def prompt_ms(self) -> float:
        """Expected time per prompt token with nothing decoding."""
        for known in (self._alone, self._beside):
            if not math.isnan(known):
                return known
        return _GUESS_MS

    @property
    def draft_ms(self) -> float:
        """Expected time of one more token in a step of few."""
        if len(self._decoding) > 1:
            fewest, most = min(self._decoding), max(self._decoding)
            return max(0.0, (self._decoding[most] - self._decoding[fewest]) / (most - fewest))
        return self.prompt_ms if math.isnan(self._beside) else self._beside

    def chunk(self, n_decoding: int, budget_ms: float) -> int:
        """Prompt tokens that a step may take."""
        if n_decoding == 0:
            return max(MIN_CHUNK, int(ALONE_FACTOR * budget_ms / self.prompt_ms))
        decoding = self.decoding_ms(n_decoding)
        left = max(budget_ms - decoding, MIN_PROMPT_SHARE * decoding)
        per_token = self.prompt_ms if math.isnan(self._beside) else self._beside
        return max(MIN_CHUNK, int(left / per_token))


def _mean(known: float, new: float) -> float:
    return new if math.isnan(known) else known + _WEIGHT * (new - known)

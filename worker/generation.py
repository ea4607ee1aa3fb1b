"""One request that generates: its choices, how they ended, and the answer made of that."""

from __future__ import annotations

from protocol.generate import ChoiceEnd, Completed, Parked, ResumePoint, Timings, Usage
from worker.prepared import PreparedGeneration
from worker.sequence import Sequence


class Generation:
    """Gathers the ends of a request's choices until all have ended."""

    def __init__(self, prepared: PreparedGeneration, sequences: list[Sequence]) -> None:
        self.prepared = prepared
        self.sequences = sequences
        """Those that have not ended."""
        self._all = list(sequences)
        self._ends: dict[int, ChoiceEnd] = {}
        self._times: list[Timings] = []

    def end(self, sequence: Sequence, stop: str, now: float) -> None:
        """One choice has ended; `stop` is `eos`, `word` or `limit`."""
        self.sequences.remove(sequence)
        output = sequence.output
        if output.called_tools and stop != "limit":
            stop = "tool_calls"
        self._ends[sequence.index] = ChoiceEnd(sequence.index, stop, output.word, sequence.n_generated)
        self._times.append(timings(sequence, now))

    @property
    def ended(self) -> bool:
        return not self.sequences

    def completed(self) -> Completed:
        first = self._all[0]
        whole = self._times[0]
        generated = sum(end.n_tokens for end in self._ends.values())
        return Completed(
            request=self.prepared.request,
            choices=tuple(self._ends[index] for index in sorted(self._ends)),
            usage=Usage(
                prompt_tokens=first.n_prompt,
                completion_tokens=generated,
                cached_tokens=first.n_cached,
                reasoning_tokens=sum(sequence.n_reasoning for sequence in self._all),
            ),
            timings=Timings(
                cache_n=whole.cache_n,
                prompt_n=whole.prompt_n,
                prompt_ms=whole.prompt_ms,
                predicted_n=generated,
                predicted_ms=max(time.predicted_ms for time in self._times),
                draft_n=sum(time.draft_n for time in self._times),
                draft_n_accepted=sum(time.draft_n_accepted for time in self._times),
            ),
            slot=first.slot,
            truncated=any(sequence.truncated for sequence in self._all),
            prompt=self.prepared.prompt.text if self.prepared.message.return_prompt else "",
            seed=self.prepared.seed,
        )

    def parked(self, now: float) -> Parked:
        """What another process needs to go on."""
        generated = tuple(tuple(sequence.output_tokens) for sequence in self._all)
        spent = max((timings(sequence, now).predicted_ms for sequence in self._all), default=0.0)
        return Parked(self.prepared.request, ResumePoint(generated, spent))


def timings(sequence: Sequence, now: float) -> Timings:
    """Counts and times of one choice so far."""
    answered = sequence.first_token > 0
    prompt_s = (sequence.first_token if answered else now) - sequence.began if sequence.began else 0.0
    return Timings(
        cache_n=sequence.n_cached,
        prompt_n=sequence.n_prompt - sequence.n_cached,
        prompt_ms=1000 * prompt_s,
        predicted_n=sequence.n_generated,
        predicted_ms=sequence.decoding_ms + (1000 * (now - sequence.first_token) if answered else 0.0),
        draft_n=sequence.n_draft,
        draft_n_accepted=sequence.n_draft_accepted,
    )

"""From a step's logits to deltas and answers: sampling, checking drafts, and the ends of sequences."""

from __future__ import annotations

from collections.abc import Callable

from protocol import codec
from protocol.errors import ErrorKind, WireError
from protocol.generate import Delta, DeltaExtra, PromptProgress, StepOutput, TokenLogprob
from worker.engine import Engine
from worker.generation import Generation, timings
from worker.llama_sampler import Floats
from worker.reasoning_budget import BudgetState
from worker.residency import Residency
from worker.sampling_pool import SamplingPool
from worker.schema_rules import ConstraintError
from worker.sequence import Phase, Sequence
from worker.shift import shift_plan
from worker.speculation import Drafter
from worker.step import Part
from worker.tally import Tally
from worker.token_choice import TokenChoice

_REASONING = (BudgetState.COUNTING, BudgetState.FORCING)

Choice = tuple[int, TokenLogprob | None] | ConstraintError


class OutputWriter:
    """`generations` are the running requests, from which those that end are taken. `fail(request, error)` ends one."""

    def __init__(
        self,
        engine: Engine,
        residency: Residency,
        drafter: Drafter | None,
        generations: dict[int, Generation],
        tally: Tally,
        clock: Callable[[], float],
        shifts: bool,
        send: Callable[[codec.FromChild], None],
        answer: Callable[[codec.Answer], None],
        fail: Callable[[int, WireError], None],
    ) -> None:
        self._context = engine.context
        self._vocabulary = engine.vocabulary
        self._residency = residency
        self._drafter = drafter
        self._generations = generations
        self._tally = tally
        self._clock = clock
        self._shifts = shifts
        self._send = send
        self._answer = answer
        self._fail = fail
        self._choice = TokenChoice(self._vocabulary)
        self.pool = SamplingPool(engine.sampling_threads)

    def collect(self, parts: list[Part]) -> None:
        """Sample for every output of the step, and send what it gave."""
        deltas: list[Delta] = []
        sampled = [part for part in parts if part.row >= 0]
        rows = self._context.logits() if sampled else None
        choices: dict[int, Choice] = {}
        if rows is not None:
            first = self.pool.run(lambda part: self._choose(part.sequence, rows[part.row]), sampled)
            choices = dict(zip((part.row for part in sampled), first, strict=True))
        for part in parts:
            sequence = part.sequence
            if sequence.phase is Phase.ENDED:
                continue  # another choice of its request has failed
            if rows is None or part.row < 0:
                if sequence.prepared.message.return_progress:
                    deltas.append(self._progress(sequence))
                continue
            if sequence.phase is Phase.PREFILL:
                sequence.phase = Phase.DECODE
                self._residency.changed = True
            if sequence.limit == 0:
                self.end(sequence, "limit", deltas)
            else:
                self._take(part, choices[part.row], rows, deltas)
        self.send_deltas(deltas)

    def _choose(self, sequence: Sequence, logits: Floats) -> Choice:
        try:
            return (0, None) if sequence.limit == 0 else self._choice.choose(sequence, logits)
        except ConstraintError as error:
            return error

    def _take(self, part: Part, choice: Choice, rows: Floats, deltas: list[Delta]) -> None:
        """Add the sampled token, then those that confirm the draft; drop from the cache what was guessed wrong."""
        sequence = part.sequence
        accepted, stop = 0, ""
        while True:
            if isinstance(choice, ConstraintError):
                self._fail(sequence.request, WireError(ErrorKind.INVALID_REQUEST, str(choice)))
                return
            token, logprob = choice
            if not sequence.first_token:
                sequence.first_token = self._clock()
            self._tally.predicted += 1
            stop = self.append(sequence, token, logprob)
            if stop or accepted == len(part.draft) or token != part.draft[accepted]:
                break
            accepted += 1
            choice = self._choose(sequence, rows[part.row + accepted])
        if part.draft:
            self._settle_draft(part, accepted)
        if stop:
            self.end(sequence, stop, deltas)
            return
        if len(sequence.tokens) >= self._context.n_ctx:
            self._shift(sequence)
        if delta := self._delta(sequence):
            deltas.append(delta)

    def _settle_draft(self, part: Part, accepted: int) -> None:
        sequence, wrong = part.sequence, len(part.draft) - accepted
        if wrong:
            sequence.n_past -= wrong
            self._residency.cache.cut(sequence.id, sequence.n_past)
        sequence.n_draft += len(part.draft)
        sequence.n_draft_accepted += accepted
        self._tally.drafts += 1
        self._tally.draft_tokens += len(part.draft)
        self._tally.draft_accepted += accepted
        if self._drafter is not None:
            self._drafter.checked(sequence, len(part.draft), accepted)

    def append(self, sequence: Sequence, token: int, logprob: TokenLogprob | None) -> str:
        """Add a generated token; how the sequence ends with it, empty if it goes on."""
        sequence.tokens.append(token)
        sequence.output_tokens.append(token)
        budget = sequence.budget
        if budget is not None:
            sequence.n_reasoning += budget.state in _REASONING
            budget.accept(token, self._vocabulary.piece(token))
        if self._vocabulary.ends_generation(token):
            sequence.output.note_end(token, logprob)
            return "eos"
        special = token in sequence.prepared.prompt.preserved
        sequence.output.feed(token, self._vocabulary.piece(token, special), logprob)
        if sequence.output.word:
            return "word"
        if sequence.mask is not None and sequence.mask.is_stopped():
            return "eos"
        if sequence.output.outdented or sequence.n_generated >= sequence.limit or self._is_late(sequence):
            return "limit"
        if len(sequence.tokens) >= self._context.n_ctx and not self._shifts:
            sequence.truncated = True
            return "limit"
        return ""

    def _is_late(self, sequence: Sequence) -> bool:
        limit = sequence.prepared.message.time_limit_ms
        if not limit or not sequence.output.has_line_break:
            return False
        return timings(sequence, self._clock()).predicted_ms > limit

    def _shift(self, sequence: Sequence) -> None:
        """Drop the middle of a full context and go on; what is left is moved where the cache allows it."""
        message = sequence.prepared.message
        start, stop = shift_plan(sequence.tokens, sequence.n_prompt, message.n_keep, message.n_discard)
        cache = self._residency.cache
        movable = cache.divisible and self._context.can_shift and cache.cells.owns_from(sequence.id, start)
        del sequence.tokens[start:stop]
        sequence.shifted = sequence.truncated = True
        if movable:
            cache.shift(sequence.id, start, stop)
            sequence.n_past -= stop - start
        else:
            self._residency.restart(sequence)

    def end(self, sequence: Sequence, stop: str, deltas: list[Delta]) -> None:
        """A choice has ended well; with the last one its request is answered."""
        sequence.output.end()
        if delta := sequence.output.delta(flush=True):
            deltas.append(delta)
        generation = self._generations[sequence.request]
        generation.end(sequence, stop, self._clock())
        self.release(sequence)
        if generation.ended:
            self.send_deltas(deltas)
            deltas.clear()
            del self._generations[sequence.request]
            self._answer(generation.completed())

    def release(self, sequence: Sequence) -> None:
        if self._drafter is not None:
            self._drafter.forget(sequence)
        self._residency.release(sequence)

    def send_deltas(self, deltas: list[Delta]) -> None:
        if deltas:
            self._send(StepOutput(self._tally.steps, tuple(deltas)))

    def _delta(self, sequence: Sequence) -> Delta | None:
        times = timings(sequence, self._clock()) if sequence.prepared.message.timings_per_token else None
        return sequence.output.delta(flush=False, timings=times)

    def _progress(self, sequence: Sequence) -> Delta:
        progress = PromptProgress(
            total=sequence.n_prompt,
            cache=sequence.n_cached,
            processed=min(sequence.n_past, sequence.n_prompt),
            time_ms=1000 * (self._clock() - sequence.began),
        )
        return Delta(sequence.request, "", 0, sequence.index, DeltaExtra(progress=progress))

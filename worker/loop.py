"""The decode loop: continuous batching over the slots. Runs on the decode thread, one step at a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from protocol import codec
from protocol.errors import ErrorKind, WireError
from protocol.generate import Delta, DeltaExtra, Failed, LoraScale, PromptProgress, StepOutput, TokenLogprob
from protocol.load import WorkerSettings
from protocol.slots import Adapters, SetAdapters, SlotAction
from protocol.status import SlotStatus
from worker.batch import plan_prefill
from worker.chat.formats import output_parser
from worker.engine import Engine
from worker.generation import Generation, timings
from worker.kv_cache import Match
from worker.llama_adapter import normalized
from worker.llama_context import Outcome
from worker.llama_sampler import BadSampling, Sampler
from worker.prepared import PreparedGeneration, PreparedInputs
from worker.reasoning_budget import BudgetState
from worker.schema_rules import ConstraintError
from worker.sequence import Phase, Sequence
from worker.shelf import Namespace
from worker.slot_files import SlotActionError
from worker.slots import SlotTable
from worker.step_cost import StepCost
from worker.step_watch import StepWatch
from worker.tally import Tally
from worker.text_output import TextOutput
from worker.token_choice import TokenChoice

SHARE_GAIN = 16
"""Tokens that waiting for another prompt must save."""
SNAPSHOT_LEAST = 64
"""Shortest prompt whose state is kept where only whole sequences can be shared."""
_REASONING = (BudgetState.COUNTING, BudgetState.FORCING)
RESUME_ROOM = 64
"""Cells beyond its own tokens that must be free before a parked sequence goes on."""


@dataclass(slots=True)
class _Part:
    """A sequence's part of a step: `n_tokens` from `n_past` on; `row` is its first output, -1 for none."""

    sequence: Sequence
    n_tokens: int
    row: int


class DecodeLoop:
    """Runs the sequences of one loaded model. `send` takes outputs and answers."""

    def __init__(
        self,
        engine: Engine,
        settings: WorkerSettings,
        watch: StepWatch,
        tally: Tally,
        send: Callable[[codec.FromChild], None],
        answer: Callable[[codec.Answer], None],
    ) -> None:
        self.slots = SlotTable(engine.n_slots)
        self.cache = engine.cache
        self.cost = StepCost()
        self.changed = False
        """Whether slots have changed since the owner last looked."""
        self._context = engine.context
        self._adapters = engine.adapters
        self._slot_files = engine.slot_files
        self._vocabulary = engine.model.vocabulary
        self._settings = settings
        self._watch = watch
        self._tally = tally
        self._send = send
        self._answer = answer
        self._choice = TokenChoice(self._vocabulary)
        self._waiting: list[Sequence] = []
        self._generations: dict[int, Generation] = {}
        self._namespace: Namespace = ()
        self._clock = time.monotonic
        watch.guard(engine.context.abort)

    @property
    def busy(self) -> bool:
        return bool(self._generations)

    @property
    def cells_used(self) -> int:
        return self.cache.cells.used

    def slot_status(self) -> tuple[SlotStatus, ...]:
        return self.slots.status()

    @property
    def requests(self) -> tuple[int, ...]:
        return tuple(self._generations)

    # What may happen to a request between two steps

    def submit(self, prepared: PreparedGeneration | PreparedInputs) -> None:
        """Take over a request. What cannot be sampled is answered at once."""
        if isinstance(prepared, PreparedInputs):
            message = "this model is not loaded for embeddings: it needs the option embeddings"
            self._answer(Failed(prepared.request, WireError(ErrorKind.NOT_SUPPORTED, message)))
            return
        self._start(prepared)

    def _start(self, prepared: PreparedGeneration) -> None:
        message = prepared.message
        if message.slot >= len(self.slots):
            self._refuse(
                prepared.request, f"slot {message.slot} does not exist: there are {len(self.slots)}", "id_slot"
            )
            return
        if message.n > len(self.slots):
            self._refuse(prepared.request, f"n must be at most the number of slots, {len(self.slots)}", "n")
            return
        sequences: list[Sequence] = []
        try:
            for index in range(message.n):
                sequences.append(self._sequence(prepared, index))
        except (BadSampling, ConstraintError) as error:
            for sequence in sequences:
                sequence.sampler.close()
            self._refuse(prepared.request, str(error), getattr(error, "param", "grammar"))
            return
        generation = Generation(prepared, list(sequences))
        self._generations[prepared.request] = generation
        self._waiting += sequences
        for sequence in sequences:
            self._replay(sequence)

    def cancel(self, request: int) -> None:
        """End a request wherever it is; its slots are free at once."""
        self._fail(request, WireError(ErrorKind.CANCELLED, "cancelled"))

    def park(self, request: int) -> None:
        """Stop a request so that it can go on in another process."""
        generation = self._generations.get(request)
        if generation is None:
            return
        deltas = [delta for sequence in generation.sequences if (delta := sequence.output.delta(flush=True))]
        self._send_deltas(deltas)
        for sequence in list(generation.sequences):
            self._let_go(sequence)
        del self._generations[request]
        self._tally.parked += 1
        self._answer(generation.parked(self._clock()))

    def end_reasoning(self, request: int) -> None:
        generation = self._generations.get(request)
        for sequence in generation.sequences if generation else ():
            if sequence.budget is not None:
                sequence.budget.end_now()

    def slot_action(self, action: SlotAction) -> None:
        """Save, restore or erase what an idle slot ran last."""
        if not 0 <= action.slot < len(self.slots):
            self._refuse(action.request, f"slot {action.slot} does not exist: there are {len(self.slots)}", "id_slot")
        elif self.slots.free(action.slot) < 0:
            self._answer(Failed(action.request, WireError(ErrorKind.CONFLICT, f"slot {action.slot} is busy")))
        else:
            try:
                self._answer(self._slot_files.run(action))
            except SlotActionError as error:
                self._answer(Failed(action.request, error.error))

    def list_adapters(self, request: int) -> None:
        self._answer(Adapters(request, self._adapters.info()))

    def set_adapters(self, message: SetAdapters) -> None:
        """Default scales from now on; what runs keeps its own."""
        try:
            self._adapters.defaults = self._scales(message.scales)
        except BadSampling as error:
            self._refuse(message.request, str(error), error.param)
            return
        self.list_adapters(message.request)

    def _scales(self, scales: tuple[LoraScale, ...] | None) -> Namespace:
        """The adapters of a request. Raises `BadSampling` for one that does not exist."""
        if scales is None:
            return self._adapters.defaults
        for scale in scales:
            if not 0 <= scale.id < len(self._adapters):
                raise BadSampling(f"adapter {scale.id} does not exist: there are {len(self._adapters)}", "lora")
        return normalized({scale.id: scale.scale for scale in scales})

    def stop(self, error: WireError) -> None:
        """End every request."""
        for request in self.requests:
            self._fail(request, error)

    # A step

    def step(self) -> bool:
        """Compute one batch; False if there is nothing to compute."""
        self._admit()
        self._resume_parked()
        parts = self._fill()
        if not parts:
            return False
        self._watch.begin(frozenset(part.sequence.request for part in parts))
        started = time.perf_counter()
        try:
            outcome = self._context.decode()
        finally:
            self._watch.end()
        if outcome is Outcome.DONE:
            self._observe(parts, 1000 * (time.perf_counter() - started))
            self._advance(parts)
            self._collect(parts)
        elif outcome is Outcome.FULL:
            self._relieve()
        else:
            self._recount(parts)
        return True

    def _observe(self, parts: list[_Part], ms: float) -> None:
        decoding = sum(part.sequence.phase is Phase.DECODE for part in parts)
        prompt = sum(part.n_tokens for part in parts if part.sequence.phase is Phase.PREFILL)
        self.cost.observe(decoding, prompt, ms)
        self._tally.step(len(parts), decoding, prompt, ms, self.cache.cells.used)

    def _admit(self) -> None:
        """Give free slots to waiting sequences, in the order in which they came."""
        for sequence in list(self._waiting):
            slot = self.slots.free(sequence.prepared.message.slot)
            if slot < 0:
                if self.slots.free() < 0:
                    return
                continue
            self._waiting.remove(sequence)
            self.slots.put(slot, sequence)
            sequence.phase = Phase.PREFILL
            self.changed = True

    def _resume_parked(self) -> None:
        """Let the oldest parked sequence go on once its tokens fit."""
        parked = [sequence for sequence in self.slots if sequence.phase is Phase.PARKED]
        if not parked:
            return
        running = [sequence.id for sequence in self.slots if sequence.id >= 0]
        free = self.cache.cells.total - self.cache.cells.held_by(running)
        oldest = min(parked, key=lambda sequence: sequence.arrived)
        if not running or free >= len(oldest.tokens) + RESUME_ROOM:
            oldest.phase = Phase.PREFILL
            self.changed = True

    def _fill(self) -> list[_Part]:
        """Fill the batch: one token of every decoding sequence, then prompt tokens within the step's budget."""
        decoding = [sequence for sequence in self.slots if sequence.phase is Phase.DECODE]
        prompts = self._ready_prompts()
        self._choose_namespace([*decoding, *prompts])
        decoding = [sequence for sequence in decoding if sequence.namespace == self._namespace]
        prompts = [sequence for sequence in prompts if sequence.namespace == self._namespace]
        while not self.cache.make_room(len(decoding) + bool(prompts)):
            self._park_youngest()
            decoding = [sequence for sequence in decoding if sequence.phase is Phase.DECODE]
            prompts = [sequence for sequence in prompts if sequence.phase is Phase.PREFILL]
        batch = self._context.batch
        batch.clear()
        parts = [
            _Part(sequence, 1, batch.add(sequence.tokens[sequence.n_past], sequence.n_past, sequence.id))
            for sequence in decoding
        ]
        if prompts:
            chunk = min(batch.room, self.cost.chunk(len(decoding), self._settings.step_budget_ms))
            room = self._prompt_room(chunk, len(decoding))
            for share in plan_prefill(prompts, room, self.cost.prompt_ms, self._clock()):
                sequence = prompts[share.index]
                end = sequence.n_past + share.n_tokens
                outputs = int(end == len(sequence.tokens))
                tokens = sequence.tokens[sequence.n_past : end]
                parts.append(
                    _Part(sequence, share.n_tokens, batch.extend(tokens, sequence.n_past, sequence.id, outputs))
                )
        return parts

    def _choose_namespace(self, ready: list[Sequence]) -> None:
        """A step computes with one set of adapters; where several are wanted, they take turns."""
        wanted = sorted({sequence.namespace for sequence in ready})
        if len(wanted) > 1:
            self._namespace = next((n for n in wanted if n > self._namespace), wanted[0])
        elif wanted:
            self._namespace = wanted[0]
        self._adapters.apply(self._context.handle, self._namespace)

    def _prompt_room(self, chunk: int, n_decoding: int) -> int:
        """As much of a chunk as there are cells for, idle tails dropped."""
        while chunk > 1 and not self.cache.make_room(n_decoding + chunk):
            chunk = min(chunk - 1, self.cache.cells.free - n_decoding)
        return chunk

    def _ready_prompts(self) -> list[Sequence]:
        """Prompts that may be decoded now, each with its cached prefix in place."""
        ready = []
        for sequence in self.slots:
            if sequence.phase is not Phase.PREFILL or sequence.blocked:
                continue
            if sequence.id < 0 and not self._begin(sequence):
                continue
            ready.append(sequence)
        return ready

    def _begin(self, sequence: Sequence) -> bool:
        """Give a sequence its place in the cache; False if it had better wait for another's tokens."""
        match = Match()
        if sequence.prepared.message.cache_prompt and self._settings.cache_prompt:
            match = self.cache.match(sequence.tokens, sequence.namespace, SHARE_GAIN)
            if match.promiser < 0 and self.cache.fetch(sequence.tokens, sequence.namespace, match.length):
                match = self.cache.match(sequence.tokens, sequence.namespace, SHARE_GAIN)
            promiser = self.slots.by_id(match.promiser) if match.promiser >= 0 else None
            if promiser is not None and promiser.phase is Phase.PREFILL and promiser.n_past < match.promised:
                if not self.cache.divisible:
                    promiser.snapshot_points.add(match.promised)
                sequence.waits_for, sequence.waits_until = promiser, match.promised
                return False
        now = self._clock()
        sequence.waits_for = None
        sequence.id = self.cache.begin(sequence.tokens, sequence.namespace)
        self.cache.adopt(sequence.id, match)
        self.cache.trim()
        sequence.n_past = sequence.n_skipped = match.length
        if not sequence.began:
            sequence.began = now
            sequence.n_cached = min(match.length, sequence.n_prompt)
            self._tally.cached += sequence.n_cached
        if not self.cache.divisible and len(sequence.tokens) >= SNAPSHOT_LEAST:
            sequence.snapshot_points.add(len(sequence.tokens) - 1)
        self.changed = True
        return True

    def _advance(self, parts: list[_Part]) -> None:
        """Count the tokens that are in the cache now."""
        for part in parts:
            sequence = part.sequence
            sequence.n_past += part.n_tokens
            self.cache.grew(sequence.id, part.n_tokens)
            if sequence.n_past in sequence.snapshot_points:
                sequence.snapshot_points.discard(sequence.n_past)
                self.cache.snapshot(sequence.id, sequence.tokens[: sequence.n_past])

    def _collect(self, parts: list[_Part]) -> None:
        """Sample for every output of the step, and send what it gave."""
        deltas: list[Delta] = []
        rows = self._context.logits() if any(part.row >= 0 for part in parts) else None
        for part in parts:
            sequence = part.sequence
            if rows is None or part.row < 0:
                if sequence.prepared.message.return_progress:
                    deltas.append(self._progress(sequence))
                continue
            if sequence.phase is Phase.PREFILL:
                sequence.phase = Phase.DECODE
                self.changed = True
            if sequence.limit == 0:
                self._end(sequence, "limit", deltas)
                continue
            try:
                token, logprob = self._choice.choose(sequence, rows[part.row])
            except ConstraintError as error:
                self._fail(sequence.request, WireError(ErrorKind.INVALID_REQUEST, str(error)))
                continue
            if not sequence.first_token:
                sequence.first_token = self._clock()
            self._tally.predicted += 1
            stop = self._append(sequence, token, logprob)
            if stop:
                self._end(sequence, stop, deltas)
            elif delta := self._delta(sequence):
                deltas.append(delta)
        self._send_deltas(deltas)

    def _append(self, sequence: Sequence, token: int, logprob: TokenLogprob | None) -> str:
        """Add a generated token; how the sequence ends with it, empty if it goes on."""
        sequence.tokens.append(token)
        budget = sequence.budget
        if budget is not None:
            sequence.n_reasoning += budget.state in _REASONING
            budget.accept(token, self._vocabulary.piece(token))
        if self._vocabulary.ends_generation(token):
            return "eos"
        special = token in sequence.prepared.prompt.preserved
        sequence.output.feed(token, self._vocabulary.piece(token, special), logprob)
        if sequence.output.word:
            return "word"
        if sequence.mask is not None and sequence.mask.is_stopped():
            return "eos"
        if sequence.n_generated >= sequence.limit:
            return "limit"
        if len(sequence.tokens) >= self._context.n_ctx:
            sequence.truncated = True
            return "limit"
        message = sequence.prepared.message
        if (
            message.time_limit_ms
            and sequence.output.has_line_break
            and timings(sequence, self._clock()).predicted_ms > message.time_limit_ms
        ):
            return "limit"
        return ""

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

    def _send_deltas(self, deltas: list[Delta]) -> None:
        if deltas:
            self._send(StepOutput(self._tally.steps, tuple(deltas)))

    # Ends

    def _end(self, sequence: Sequence, stop: str, deltas: list[Delta]) -> None:
        """A choice has ended well."""
        sequence.output.end()
        if sequence.output.word:
            stop = "word"
        if delta := sequence.output.delta(flush=True):
            deltas.append(delta)
        generation = self._generations[sequence.request]
        generation.end(sequence, stop, self._clock())
        self._let_go(sequence)
        if generation.ended:
            self._send_deltas(deltas)
            deltas.clear()
            del self._generations[sequence.request]
            self._answer(generation.completed())

    def _fail(self, request: int, error: WireError) -> None:
        generation = self._generations.pop(request, None)
        if generation is None:
            return
        for sequence in list(generation.sequences):
            self._let_go(sequence)
        if error.kind is ErrorKind.CANCELLED:
            self._tally.cancelled += 1
        self._answer(Failed(request, error))

    def _refuse(self, request: int, message: str, param: str) -> None:
        self._answer(Failed(request, WireError(ErrorKind.INVALID_REQUEST, message, param)))

    def _let_go(self, sequence: Sequence) -> None:
        """Free a sequence's slot and sampler; what it has decoded stays in the cache for others."""
        sequence.sampler.close()
        if sequence.phase is Phase.WAITING:
            self._waiting.remove(sequence)
            return
        if sequence.id >= 0:
            self._slot_files.last[sequence.slot] = (tuple(sequence.tokens[: sequence.n_past]), sequence.namespace)
            self.cache.settle(sequence.id, sequence.tokens[: sequence.n_past])
            sequence.id = -1
        self.slots.clear(sequence)
        sequence.phase = Phase.ENDED
        self.changed = True
        if self.slots.busy:
            self.cache.trim()

    # A full cache, and steps that were ended early

    def _park_youngest(self) -> None:
        """Let the newest running sequence go; it goes on from its tokens once there is room again."""
        youngest = max((s for s in self.slots if s.id >= 0), key=lambda sequence: sequence.arrived)
        self.cache.drop(youngest.id)
        youngest.id = -1
        youngest.n_past = youngest.n_skipped = 0
        youngest.snapshot_points.clear()
        youngest.phase = Phase.PARKED
        self._tally.parked += 1
        self.changed = True

    def _relieve(self) -> None:
        """The engine found no room where the ledger saw some (a sliding window's own, smaller cache)."""
        if not self.cache.drop_idle():
            self._park_youngest()

    def _recount(self, parts: list[_Part]) -> None:
        """Find out how much of an aborted step has been decoded."""
        for part in parts:
            sequence = part.sequence
            decoded = min(self._context.length(sequence.id), len(sequence.tokens) - 1)
            if decoded > sequence.n_past:
                self.cache.grew(sequence.id, decoded - sequence.n_past)
            sequence.n_past = decoded
            if not self.cache.divisible:
                self._restart(sequence)
            else:
                self.cache.cut(sequence.id, decoded)

    def _restart(self, sequence: Sequence) -> None:
        """Begin a sequence anew: its state cannot be cut back to a known point."""
        self.cache.drop(sequence.id)
        sequence.id = -1
        sequence.n_past = sequence.n_skipped = 0
        sequence.phase = Phase.PREFILL

    # New sequences

    def _sequence(self, prepared: PreparedGeneration, index: int) -> Sequence:
        message, prompt = prepared.message, prepared.prompt
        n_prompt = len(prompt.tokens)
        n_ctx = self._context.n_ctx
        sampler = Sampler(
            message.sampling,
            self._vocabulary,
            (prepared.seed + index) & 0xFFFFFFFF,
            n_ctx,
            prepared.biases,
            prepared.grammar,
        )
        sampler.remember_prompt(prompt.tokens[-n_ctx:])
        return Sequence(
            prepared=prepared,
            index=index,
            sampler=sampler,
            output=TextOutput(
                prepared.request,
                index,
                prepared.stops,
                output_parser(prompt.syntax) if prompt.syntax else None,
                message.stream,
                message.return_tokens,
            ),
            mask=prepared.mask() if prepared.mask else None,
            budget=prompt.budget() if prompt.budget else None,
            tokens=list(prompt.tokens),
            n_prompt=n_prompt,
            limit=message.max_tokens if message.max_tokens >= 0 else n_ctx,
            namespace=self._scales(message.adapters),
            arrived=self._clock(),
        )

    def _replay(self, sequence: Sequence) -> None:
        """Bring a sequence that was parked in another process to where it stood there."""
        resumed = sequence.prepared.resumed
        if sequence.index >= len(resumed):
            return
        stop = ""
        for token in resumed[sequence.index]:
            sequence.sampler.accept(token)
            if sequence.mask is not None:
                sequence.mask.accept(token)
            stop = self._append(sequence, token, None)
        sequence.output.forget()
        resume = sequence.prepared.message.resume
        sequence.decoding_ms = resume.elapsed_ms if resume else 0.0
        if stop:
            deltas: list[Delta] = []
            self._end(sequence, stop, deltas)
            self._send_deltas(deltas)

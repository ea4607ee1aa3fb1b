"""The decode loop: continuous batching over the slots. Runs on the decode thread, one step at a time."""

from __future__ import annotations

import time
from collections.abc import Callable

from protocol import codec
from protocol.errors import ErrorKind, WireError
from protocol.generate import Delta, Failed, LoraScale
from protocol.load import WorkerSettings
from protocol.slots import Adapters, SetAdapters, SlotAction
from protocol.status import SlotStatus
from worker.chat.formats import output_parser
from worker.engine import Engine
from worker.generation import Generation
from worker.llama_adapter import normalized
from worker.llama_context import Outcome
from worker.llama_sampler import BadSampling, Sampler
from worker.media_tokens import is_media
from worker.output_writer import OutputWriter
from worker.prepared import PreparedGeneration, PreparedInputs
from worker.residency import Residency
from worker.schema_rules import ConstraintError
from worker.sequence import Phase, Sequence
from worker.shelf import Namespace
from worker.slot_files import SlotActionError
from worker.slots import SlotTable
from worker.step import Part, StepFiller
from worker.step_cost import StepCost
from worker.step_watch import StepWatch
from worker.tally import Tally
from worker.text_output import TextOutput

UNLIMITED = 1 << 31


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
        self._context = engine.context
        self._adapters = engine.adapters
        self._slot_files = engine.slot_files
        self._vocabulary = engine.vocabulary
        self._shifts = settings.context_shift
        self._watch = watch
        self._tally = tally
        self._answer = answer
        self._clock = time.monotonic
        self._generations: dict[int, Generation] = {}
        self._slots = SlotTable(engine.n_slots)
        self._cost = StepCost()
        self._residency = Residency(
            self._slots, engine.cache, engine.slot_files, tally, self._clock, settings.cache_prompt
        )
        self._filler = StepFiller(
            engine, self._residency, self._cost, engine.drafter, settings.step_budget_ms, self._clock
        )
        self._writer = OutputWriter(
            engine,
            self._residency,
            engine.drafter,
            self._generations,
            tally,
            self._clock,
            settings.context_shift,
            send,
            answer,
            self._fail,
        )
        watch.guard(engine.context.abort)

    def close(self) -> None:
        self._writer.pool.close()

    @property
    def cells_used(self) -> int:
        return self._residency.cache.cells.used

    def slot_status(self) -> tuple[SlotStatus, ...]:
        return self._slots.status()

    @property
    def requests(self) -> tuple[int, ...]:
        return tuple(self._generations)

    def take_changed(self) -> bool:
        """Whether slots have changed since this was last asked."""
        changed, self._residency.changed = self._residency.changed, False
        return changed

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
        if message.slot >= len(self._slots):
            self._refuse(
                prepared.request, f"slot {message.slot} does not exist: there are {len(self._slots)}", "id_slot"
            )
            return
        if message.n > len(self._slots):
            self._refuse(prepared.request, f"n must be at most the number of slots, {len(self._slots)}", "n")
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
        self._residency.enqueue(sequences)
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
        self._writer.send_deltas(deltas)
        for sequence in list(generation.sequences):
            self._writer.release(sequence)
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
        if not 0 <= action.slot < len(self._slots):
            self._refuse(action.request, f"slot {action.slot} does not exist: there are {len(self._slots)}", "id_slot")
        elif self._slots.free(action.slot) < 0:
            self._answer(Failed(action.request, WireError(ErrorKind.CONFLICT, f"slot {action.slot} is busy")))
        else:
            try:
                self._answer(self._slot_files.run(action))
                self._residency.changed = True  # what is in the cache is news too
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
        self._residency.admit()
        parts = self._filler.fill()
        if not parts:
            return False
        self._watch.begin(frozenset(part.sequence.request for part in parts))
        started = time.perf_counter()
        try:
            embeddings = parts[0].embeddings
            outcome = self._context.decode() if embeddings is None else self._context.decode_embeddings(embeddings)
        finally:
            self._watch.end()
        if outcome is Outcome.DONE:
            self._observe(parts, 1000 * (time.perf_counter() - started))
            for part in parts:
                self._residency.advance(part.sequence, part.n_tokens)
            self._writer.collect(parts)
        elif outcome is Outcome.FULL:
            self._relieve(parts)
        else:
            for part in parts:
                self._residency.recount(part.sequence, self._context.length(part.sequence.id))
        return True

    def _observe(self, parts: list[Part], ms: float) -> None:
        """Learn from a step, which is counted as it was filled: phases change only afterwards."""
        singles = sum(part.n_tokens for part in parts if part.sequence.phase is Phase.DECODE)
        prompt = sum(part.n_tokens for part in parts if part.sequence.phase is Phase.PREFILL)
        self._cost.observe(singles, prompt, ms)
        self._tally.step(len(parts), singles, prompt, ms, self.cells_used)

    def _relieve(self, parts: list[Part]) -> None:
        """The engine found no room where the ledger saw some: a sliding window has a smaller cache of its own."""
        if self._residency.cache.drop_idle():
            return
        if len({part.sequence.request for part in parts}) > 1:
            self._residency.park_youngest()
            return
        message = "the engine's cache has no room for this request, which runs alone"
        self._fail(parts[0].sequence.request, WireError(ErrorKind.INTERNAL, message))

    # Ends, and new sequences

    def _fail(self, request: int, error: WireError) -> None:
        generation = self._generations.pop(request, None)
        if generation is None:
            return
        for sequence in list(generation.sequences):
            self._writer.release(sequence)
        if error.kind is ErrorKind.CANCELLED:
            self._tally.cancelled += 1
        self._answer(Failed(request, error))

    def _refuse(self, request: int, message: str, param: str) -> None:
        self._answer(Failed(request, WireError(ErrorKind.INVALID_REQUEST, message, param)))

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
        sampler.remember_prompt([token for token in prompt.tokens if not is_media(token)])
        return Sequence(
            prepared=prepared,
            index=index,
            sampler=sampler,
            output=TextOutput(
                prepared.request,
                index,
                prepared.stops,
                output_parser(prompt.syntax) if prompt.syntax else None,
                streamed=message.stream,
                with_tokens=message.return_tokens,
                least_indent=message.n_indent,
                echo=prompt.text if message.echo else "",
            ),
            mask=prepared.mask() if prepared.mask else None,
            budget=prompt.budget() if prompt.budget else None,
            tokens=list(prompt.tokens),
            n_prompt=n_prompt,
            limit=message.max_tokens if message.max_tokens >= 0 else UNLIMITED if self._shifts else n_ctx,
            namespace=self._scales(message.adapters),
            arrived=self._clock(),
            positions=prompt.media.positions() if prompt.media else None,
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
            stop = self._writer.append(sequence, token, None)
        sequence.output.forget()
        resume = sequence.prepared.message.resume
        sequence.decoding_ms = resume.elapsed_ms if resume else 0.0
        if stop:
            deltas: list[Delta] = []
            self._writer.end(sequence, stop, deltas)
            self._writer.send_deltas(deltas)

"""The loop of workers that embed and rerank: whole inputs, several in one batch, nothing kept between batches."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from protocol import codec
from protocol.embed import Embedded, Rerank, Reranked
from protocol.errors import ErrorKind, WireError
from protocol.generate import Failed
from protocol.status import SlotStatus
from worker.llama_context import Context, Outcome
from worker.prepared import PreparedGeneration, PreparedInputs
from worker.step_watch import StepWatch
from worker.tally import Tally
from worker.vectors import pack

Floats = npt.NDArray[np.float32]


@dataclass(slots=True)
class _Job:
    """One request; `results` are filled by input."""

    prepared: PreparedInputs
    results: list[Floats | None]
    left: int


@dataclass(slots=True)
class _Part:
    """An input in the present batch, under its own sequence id."""

    job: _Job
    number: int
    sequence: int
    first_row: int
    n_tokens: int


@dataclass(slots=True)
class EmbeddingLoop:
    """Runs the inputs of all requests in the order in which they came. `answer` takes the results."""

    context: Context
    n_slots: int
    width: int
    """Values of a vector, or of a document's scores."""
    pooled: bool
    watch: StepWatch
    tally: Tally
    answer: Callable[[codec.Answer], None]
    _changed: bool = False
    _jobs: dict[int, _Job] = field(default_factory=dict)
    _waiting: deque[tuple[_Job, int]] = field(default_factory=deque)
    _running: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.watch.guard(self.context.abort)

    def close(self) -> None:
        """Nothing of its own to free."""

    def take_changed(self) -> bool:
        """Whether slots have changed since this was last asked."""
        changed, self._changed = self._changed, False
        return changed

    @property
    def requests(self) -> tuple[int, ...]:
        return tuple(self._jobs)

    @property
    def cells_used(self) -> int:
        return 0

    def slot_status(self) -> tuple[SlotStatus, ...]:
        """The requests of the running batch, as far as there are slots to show them in."""
        running = self._running[: self.n_slots]
        busy = [SlotStatus(number, "prefill", request) for number, request in enumerate(running)]
        return (*busy, *(SlotStatus(number, "idle") for number in range(len(busy), self.n_slots)))

    def submit(self, prepared: PreparedInputs | PreparedGeneration) -> None:
        if isinstance(prepared, PreparedGeneration):
            message = "this model is loaded for embeddings: it generates no text"
            self.answer(Failed(prepared.request, WireError(ErrorKind.NOT_SUPPORTED, message)))
            return
        count = len(prepared.inputs)
        job = _Job(prepared, [None] * count, count)
        self._jobs[prepared.request] = job
        self._waiting += [(job, number) for number in range(count)]
        if not count:
            self._finish(job)

    def cancel(self, request: int) -> None:
        self._drop(request, WireError(ErrorKind.CANCELLED, "cancelled"))

    def park(self, request: int) -> None:
        """Nothing of an input is worth keeping: it is computed again elsewhere, from the beginning."""
        self._drop(request, WireError(ErrorKind.UNAVAILABLE, "the model is being unloaded"))

    def end_reasoning(self, request: int) -> None:
        """There is none."""

    def stop(self, error: WireError) -> None:
        for request in self.requests:
            self._drop(request, error)

    def step(self) -> bool:
        """Compute as many whole inputs as fit in one batch; False if there are none."""
        parts = self._fill()
        if not parts:
            return False
        self._running = tuple(dict.fromkeys(part.job.prepared.request for part in parts))
        self._changed = True
        self.watch.begin(frozenset(self._running))
        started = time.perf_counter()
        try:
            outcome = self.context.decode()
        finally:
            self.watch.end()
        n_tokens = self.context.batch.n_tokens
        if outcome is Outcome.DONE:
            self.tally.step(len(parts), 0, n_tokens, 1000 * (time.perf_counter() - started), n_tokens)
            self._collect(parts)
        else:
            self._waiting.extendleft((part.job, part.number) for part in reversed(parts))
            self._forget_cancelled()
        self.context.clear()
        self._running = ()
        return True

    def _fill(self) -> list[_Part]:
        batch = self.context.batch
        batch.clear()
        parts: list[_Part] = []
        while self._waiting and len(parts) < self.context.n_seq_max:
            job, number = self._waiting[0]
            tokens = job.prepared.inputs[number]
            if len(tokens) > batch.room:
                break
            self._waiting.popleft()
            row = batch.extend(tokens, 0, len(parts), len(tokens))
            parts.append(_Part(job, number, len(parts), row, len(tokens)))
        return parts

    def _collect(self, parts: list[_Part]) -> None:
        rows = None if self.pooled else self.context.token_embeddings()
        for part in parts:
            if rows is None:
                result = self.context.sequence_embedding(part.sequence, self.width)[None, :]
            else:
                result = rows[part.first_row : part.first_row + part.n_tokens]
            part.job.results[part.number] = result
            part.job.left -= 1
            if part.job.left == 0:
                self._finish(part.job)

    def _finish(self, job: _Job) -> None:
        message = job.prepared.message
        if self._jobs.pop(message.request, None) is None:
            return
        results = [result for result in job.results if result is not None]
        lengths = tuple(len(tokens) for tokens in job.prepared.inputs)
        if isinstance(message, Rerank):
            self.answer(Reranked(message.request, tuple(float(result[0, 0]) for result in results), sum(lengths)))
            return
        vectors = tuple(tuple(pack(row, message.normalize, message.dimensions) for row in result) for result in results)
        self.answer(Embedded(message.request, vectors, lengths))

    def _drop(self, request: int, error: WireError) -> None:
        if self._jobs.pop(request, None) is None:
            return
        self._forget_cancelled()
        if error.kind is ErrorKind.CANCELLED:
            self.tally.cancelled += 1
        self.answer(Failed(request, error))

    def _forget_cancelled(self) -> None:
        self._waiting = deque(entry for entry in self._waiting if entry[0].prepared.request in self._jobs)

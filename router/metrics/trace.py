"""Follows one request through its stream: its times for the histograms, and the line it leaves in the log."""

from __future__ import annotations

import time
from collections.abc import Callable

from protocol.codec import Answer
from protocol.errors import ErrorKind, WireError
from protocol.generate import Completed, Delta, Failed, Parked
from router.logs.requests import RequestRecord, log_request
from router.metrics.observations import Observations
from router.scheduling.effects import Phase
from router.transport.encoder import Encoder
from router.transport.stream import CAPACITY, RequestStream

_PREPARING = frozenset({Phase.DOWNLOADING, Phase.LOADING, Phase.WAKING})
"""Phases in which the model is brought; all but these and `running` are waiting."""


class TracedStream(RequestStream):
    """A request stream that notes when things happen to it. Costs about two microseconds per delta."""

    def __init__(
        self,
        request: int,
        encoder: Encoder,
        *,
        id: str,
        model: str,
        key: str,
        observations: Observations,
        on_answered: Callable[[], None] | None = None,
        capacity: int = CAPACITY,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(request, encoder, on_answered, capacity)
        self._id = id
        self._model = model
        self._key = key
        self._observations = observations
        self._gap = observations.gaps(model)
        self._clock = clock
        self._arrived = clock()
        self._phase = Phase.QUEUED
        self._entered = self._arrived
        self._queued = 0.0
        self._loading = 0.0
        self._dispatched = False
        self._first: float | None = None
        self._last = 0.0
        self._traced = False

    def notify(self, phase: Phase, position: int = 0, progress: float = 0.0) -> None:
        self._enter(phase)
        super().notify(phase, position, progress)

    def restart(self) -> None:
        """Called each time that a worker is given the request from its beginning."""
        super().restart()
        self._first = None
        if self._dispatched:
            self._observations.request_retried(self._model)
        self._enter(Phase.RUNNING)
        self._dispatch()

    def delta(self, delta: Delta) -> None:
        now = self._clock()
        if self._first is None:
            self._first = self._last = now
            self._enter(Phase.RUNNING)
            self._dispatch()
            self._observations.first_token(self._model, now - self._arrived)
        elif delta.index == 0 and delta.n_tokens > 0:
            # Other choices grow in the same steps: between them there is no gap to be felt.
            self._gap((now - self._last) / delta.n_tokens)
            self._last = now
        super().delta(delta)

    def answer(self, answer: Answer) -> None:
        super().answer(answer)
        if not isinstance(answer, Parked):
            self._trace(answer, answer.error if isinstance(answer, Failed) else None)

    def fail(self, error: WireError) -> None:
        super().fail(error)
        self._trace(None, error)

    def gone(self) -> None:
        """The client left before the end, and nobody may come back."""
        self._trace(None, WireError(ErrorKind.CANCELLED, "the client left"))

    def _enter(self, phase: Phase) -> None:
        """Add the time since the last change to the phase that ends now."""
        now = self._clock()
        spent = now - self._entered
        if self._phase in _PREPARING:
            self._loading += spent
        elif self._phase is not Phase.RUNNING:
            self._queued += spent
        self._phase = phase
        self._entered = now

    def _dispatch(self) -> None:
        if not self._dispatched:
            self._dispatched = True
            self._observations.dispatched(self._model, self._queued + self._loading)

    def _trace(self, answer: Answer | None, error: WireError | None) -> None:
        if self._traced:
            return
        self._traced = True
        now = self._clock()
        self._enter(Phase.RUNNING)
        end = _end(answer, error)
        self._observations.request_ended(self._model, end, now - self._arrived)
        usage = answer.usage if isinstance(answer, Completed) else None
        log_request(
            RequestRecord(
                id=self._id,
                key=self._key,
                model=self._model,
                end=end,
                total_ms=1e3 * (now - self._arrived),
                queue_ms=1e3 * self._queued,
                load_ms=1e3 * self._loading,
                ttft_ms=None if self._first is None else 1e3 * (self._first - self._arrived),
                prompt_tokens=usage.prompt_tokens if usage else None,
                cached_tokens=usage.cached_tokens if usage else None,
                completion_tokens=usage.completion_tokens if usage else None,
                error=error.message if error else "",
            )
        )


def _end(answer: Answer | None, error: WireError | None) -> str:
    if error is not None:
        return error.kind.value
    if isinstance(answer, Completed) and answer.choices:
        return answer.choices[0].stop
    return "done"

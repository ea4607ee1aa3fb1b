"""What is counted as it happens: times of requests and loads, decisions of the scheduler, ends of workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import Counter, Histogram, Summary

from router.metrics.series import Family

_QUEUE_WAITS = (0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 120.0)
_FIRST_TOKENS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_GAPS = (0.01, 0.02, 0.035, 0.05, 0.1, 0.25, 1.0)
"""Each bucket is a line for each model in every scrape."""

Observe = Callable[[float], None]


def _histogram(name: str, documentation: str, buckets: tuple[float, ...]) -> Family[Histogram]:
    return Family(lambda: Histogram(f"llamaherd_{name}", documentation, ["model"], registry=None, buckets=buckets))


def _summary(name: str, documentation: str) -> Family[Summary]:
    """The sum and the count alone: what is far too rare, or differs too much by request, for its quantiles to tell."""
    return Family(lambda: Summary(f"llamaherd_{name}", documentation, ["model"], registry=None))


def _counter(name: str, documentation: str, *labels: str) -> Family[Counter]:
    return Family(lambda: Counter(f"llamaherd_{name}", documentation, labels, registry=None))


class _ModelMetrics:
    """The recorders of requests to one model. Looking a label up costs more than counting with it."""

    def __init__(self, model: str, owner: Observations) -> None:
        self.waited = _recorder(owner.queue_wait, model)
        self.first_token = _recorder(owner.first_token_after, model)
        self.gap = _recorder(owner.inter_token, model)
        self.whole = _recorder(owner.request, model)


def _recorder(family: Family[Histogram] | Family[Summary], model: str) -> Observe:
    series = family.part(model)
    observe = series.metric.labels(model).observe

    def record(value: float) -> None:
        series.touch()
        observe(value)

    return record


class Observations:
    """Counters and histograms of one gateway. All methods take microseconds and are called on the event loop.

    `model` is always the id of a configured model, never text from a client: the number of series stays bounded.
    """

    def __init__(self) -> None:
        self.queue_wait = _histogram("queue_wait_seconds", "From arrival until a worker got the request", _QUEUE_WAITS)
        self.first_token_after = _histogram("first_token_seconds", "From arrival to the first token", _FIRST_TOKENS)
        self.inter_token = _histogram("inter_token_seconds", "Gaps between tokens of one answer", _GAPS)
        self.request = _summary("request_seconds", "From arrival to the end of the answer")
        self._load = _summary("load_seconds", "From the decision to load until the model was ready")
        self._requests = _counter("requests", "Requests by how they ended", "model", "end")
        self._loads = _counter("loads", "Loads by result", "model", "result")
        self._evictions = _counter("evictions", "Models that left memory without being asked to", "model", "reason")
        self._swaps = _counter("swaps", "Models that left to make room for another one")
        self._exits = _counter("worker_exits", "Worker processes that ended, by reason", "model", "reason")
        self._restarts = _counter("worker_restarts", "Workers started again after a crash", "model")
        self._retries = _counter("requests_retried", "Requests sent to a second worker after a crash", "model")
        self._downloads = _counter("downloads_finished", "Downloads by result", "result")
        self._swaps.part()
        self._models: dict[str, _ModelMetrics] = {}
        self._counts: dict[tuple[str, str], Callable[[], None]] = {}

    def text(self) -> Iterator[bytes]:
        """All of it in the text format 0.0.4, in pieces."""
        for family in (self.queue_wait, self.first_token_after, self.inter_token, self.request, self._load):
            yield from family.text()
        for counter in (
            self._requests,
            self._loads,
            self._evictions,
            self._swaps,
            self._exits,
            self._restarts,
            self._retries,
            self._downloads,
        ):
            yield from counter.text()

    def gaps(self, model: str) -> Observe:
        """The recorder of gaps of one model, called once per token."""
        return self._of(model).gap

    def dispatched(self, model: str, waited: float) -> None:
        self._of(model).waited(waited)

    def first_token(self, model: str, after: float) -> None:
        self._of(model).first_token(after)

    def request_ended(self, model: str, end: str, after: float) -> None:
        """`end` is a finish reason, or the kind of the error."""
        self._of(model).whole(after)
        count = self._counts.get((model, end))
        if count is None:
            count = self._counts[model, end] = self._requests.part(model).metric.labels(model, end).inc
        self._requests.part(model).touch()
        count()

    def request_retried(self, model: str) -> None:
        _count(self._retries, model)

    def loaded(self, model: str, after: float) -> None:
        _count(self._loads, model, "ok")
        _recorder(self._load, model)(after)

    def load_failed(self, model: str) -> None:
        _count(self._loads, model, "failed")

    def evicted(self, model: str, reason: str) -> None:
        """`reason` is `swap` where another model takes the room, `idle` where nobody used it."""
        _count(self._evictions, model, reason)
        if reason == "swap":
            swaps = self._swaps.part()
            swaps.touch()
            swaps.metric.inc()

    def worker_ended(self, model: str, reason: str) -> None:
        _count(self._exits, model, reason)

    def worker_restarted(self, model: str) -> None:
        _count(self._restarts, model)

    def download_ended(self, result: str) -> None:
        """`done`, `cancelled` or `failed`."""
        _count(self._downloads, result)

    def _of(self, model: str) -> _ModelMetrics:
        metrics = self._models.get(model)
        if metrics is None:
            metrics = self._models[model] = _ModelMetrics(model, self)
        return metrics


def _count(family: Family[Counter], *labels: str) -> None:
    series = family.part(labels[0])
    series.touch()
    series.metric.labels(*labels).inc()

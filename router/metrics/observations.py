"""What is counted as it happens: times of requests and loads, decisions of the scheduler, ends of workers."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram

Observe = Callable[[float], None]

_WAITS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_GAPS = (0.002, 0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)
_LOADS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)


class _ModelMetrics:
    """The metrics of requests to one model. Looking a child up by its label costs more than counting with it."""

    def __init__(self, model: str, waits: Histogram, first: Histogram, gaps: Histogram, whole: Histogram) -> None:
        self.waited: Observe = waits.labels(model).observe
        self.first_token: Observe = first.labels(model).observe
        self.gap: Observe = gaps.labels(model).observe
        self.whole: Observe = whole.labels(model).observe
        self.ends: dict[str, Callable[[], None]] = {}


class Observations:
    """Counters and histograms of one gateway. All methods take microseconds and are called on the event loop.

    `model` is always the id of a configured model, never text from a client: the number of series stays bounded.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def histogram(name: str, documentation: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"llamaherd_{name}", documentation, ["model"], registry=registry, buckets=buckets)

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"llamaherd_{name}", documentation, labels, registry=registry)

        self._queue_wait = histogram("queue_wait_seconds", "From arrival until a worker got the request", _WAITS)
        self._first_token = histogram("first_token_seconds", "From arrival to the first token", _WAITS)
        self._inter_token = histogram("inter_token_seconds", "Gaps between tokens of one answer", _GAPS)
        self._request = histogram("request_seconds", "From arrival to the end of the answer", _WAITS)
        self._load = histogram("load_seconds", "From the decision to load until the model was ready", _LOADS)
        self._requests = counter("requests", "Requests by how they ended", "model", "end")
        self._loads = counter("loads", "Loads by result", "model", "result")
        self._evictions = counter("evictions", "Models that left memory without being asked to", "model", "reason")
        self._swaps = counter("swaps", "Models that left to make room for another one")
        self._exits = counter("worker_exits", "Worker processes that ended, by reason", "model", "reason")
        self._restarts = counter("worker_restarts", "Workers started again after a crash", "model")
        self._retries = counter("requests_retried", "Requests sent to a second worker after a crash", "model")
        self._downloads = counter("downloads_finished", "Downloads by result", "result")
        self._models: dict[str, _ModelMetrics] = {}

    def gaps(self, model: str) -> Observe:
        """The recorder of gaps of one model, called once per token."""
        return self._of(model).gap

    def dispatched(self, model: str, waited: float) -> None:
        self._of(model).waited(waited)

    def first_token(self, model: str, after: float) -> None:
        self._of(model).first_token(after)

    def request_ended(self, model: str, end: str, after: float) -> None:
        """`end` is a finish reason, or the kind of the error."""
        metrics = self._of(model)
        metrics.whole(after)
        count = metrics.ends.get(end)
        if count is None:
            count = metrics.ends[end] = self._requests.labels(model, end).inc
        count()

    def request_retried(self, model: str) -> None:
        self._retries.labels(model).inc()

    def loaded(self, model: str, after: float) -> None:
        self._loads.labels(model, "ok").inc()
        self._load.labels(model).observe(after)

    def load_failed(self, model: str) -> None:
        self._loads.labels(model, "failed").inc()

    def evicted(self, model: str, reason: str) -> None:
        """`reason` is `swap` where another model takes the room, else why it left (`idle`, `memory`)."""
        self._evictions.labels(model, reason).inc()
        if reason == "swap":
            self._swaps.inc()

    def worker_ended(self, model: str, reason: str) -> None:
        self._exits.labels(model, reason).inc()

    def worker_restarted(self, model: str) -> None:
        self._restarts.labels(model).inc()

    def download_ended(self, result: str) -> None:
        """`done`, `cancelled` or `failed`."""
        self._downloads.labels(result).inc()

    def _of(self, model: str) -> _ModelMetrics:
        metrics = self._models.get(model)
        if metrics is None:
            histograms = (self._queue_wait, self._first_token, self._inter_token, self._request)
            metrics = self._models[model] = _ModelMetrics(model, *histograms)
        return metrics

"""The families that are read from a snapshot: gauges are levels of now, `llamacpp:` counters the workers' totals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from router.metrics.process import ProcessSample
from router.metrics.snapshot import DeviceSample, ModelSample, Snapshot

Labels = tuple[tuple[str, str], ...]
Rows = Iterable[tuple[Labels, float]]
T = TypeVar("T")


class Level(NamedTuple, Generic[T]):
    """One family: its name, its type for Prometheus, what it means, and its rows in a `T`."""

    name: str
    kind: str
    documentation: str
    rows: Callable[[T], Rows]

    @property
    def header(self) -> str:
        return f"# HELP {self.name} {self.documentation}\n# TYPE {self.name} {self.kind}\n"


def gateway_levels() -> tuple[Level[Snapshot], ...]:
    """What there is once."""
    return tuple(_gauge(*row) for row in _GATEWAY)


def process_levels() -> tuple[Level[ProcessSample], ...]:
    """The router's own process."""
    return tuple(Level(f"process_{name}", kind, words, _single(value)) for name, kind, words, value in _PROCESS)


def model_levels() -> tuple[Level[ModelSample], ...]:
    """What each model has; the label `model` is added to their rows."""
    return (*_model_gauges(), *_llamacpp())


def _gauge(name: str, documentation: str, rows: Callable[[T], Rows]) -> Level[T]:
    return Level(f"llamaherd_{name}", "gauge", documentation, rows)


def _single(value: Callable[[T], float]) -> Callable[[T], Rows]:
    return lambda sample: (((), value(sample)),)


def _per_device(value: Callable[[DeviceSample], float]) -> Callable[[Snapshot], Rows]:
    return lambda snapshot: (((("device", device.device),), value(device)) for device in snapshot.devices)


_GATEWAY: tuple[tuple[str, str, Callable[[Snapshot], Rows]], ...] = (
    ("build_info", "What is running", lambda s: (((("version", s.version),), 1),)),
    ("device_budget_bytes", "Memory that models may use", _per_device(lambda d: d.budget)),
    ("device_reserved_bytes", "Memory that is reserved for resident models", _per_device(lambda d: d.reserved)),
    (
        "download_bytes",
        "Bytes that are there",
        lambda s: (((("download", item.reference),), item.done) for item in s.downloads),
    ),
    (
        "download_size_bytes",
        "Bytes that there will be",
        lambda s: (((("download", item.reference),), item.total) for item in s.downloads),
    ),
    ("spare_workers", "Warm workers that wait for a model", _single(lambda s: s.spare_workers)),
    ("streams", "Answers held for their readers", _single(lambda s: s.streams)),
)


_PROCESS: tuple[tuple[str, str, str, Callable[[ProcessSample], float]], ...] = (
    ("cpu_seconds_total", "counter", "Processor time of the router", lambda p: p.cpu_seconds),
    ("resident_memory_bytes", "gauge", "Memory of the router that is in use", lambda p: p.resident),
    ("virtual_memory_bytes", "gauge", "Addresses of the router that are mapped", lambda p: p.virtual),
    ("open_fds", "gauge", "Open files and connections of the router", lambda p: p.open_files),
    ("max_fds", "gauge", "How many it may open", lambda p: p.most_files),
    ("start_time_seconds", "gauge", "When the router started, as a Unix time", lambda p: p.started),
)


def _model_gauges() -> Iterator[Level[ModelSample]]:
    yield _gauge("model_state", "1 for the state that the model is in", lambda m: (((("state", m.state),), 1),))
    for name, documentation, value in _MODEL_GAUGES:
        yield _gauge(name, documentation, _single(value))
    for name, documentation, value in _WORKER_GAUGES:
        yield _gauge(name, documentation, _with_a_worker(value))
    yield _gauge(
        "model_memory_bytes",
        "Memory of the worker's process; resident includes mapped files, anonymous does not",
        _memory,
    )
    yield _gauge("model_device_memory_bytes", "What the model holds on each device, by use", _device_memory)


_MODEL_GAUGES: tuple[tuple[str, str, Callable[[ModelSample], float]], ...] = (
    ("model_pinned", "Whether the model is never evicted", lambda m: m.pinned),
    ("requests_running", "Requests that a worker has", lambda m: m.running),
    ("queue_requests", "Requests that wait in the gateway", lambda m: m.waiting),
    ("queue_oldest_seconds", "How long the oldest of them has waited", lambda m: m.oldest_wait),
)


_WORKER_GAUGES: tuple[tuple[str, str, Callable[[ModelSample], float]], ...] = (
    ("model_slots", "Slots of the model", lambda m: m.slots),
    ("model_slots_busy", "Slots that run a sequence", lambda m: m.slots_busy),
    ("model_threads", "Threads that the worker computes with", lambda m: m.threads),
    ("model_kv_cells", "Cells of the KV cache", lambda m: m.kv_total),
    ("model_kv_cells_used", "Cells of the KV cache that hold a token", lambda m: m.kv_used),
    ("load_progress_ratio", "How far the load has come, 0 to 1", lambda m: m.load_progress),
)


def _with_a_worker(value: Callable[[ModelSample], float]) -> Callable[[ModelSample], Rows]:
    return lambda model: (((), value(model)),) if model.has_worker else ()


def _memory(model: ModelSample) -> Rows:
    if model.memory.resident:
        yield (("kind", "resident"),), model.memory.resident
        yield (("kind", "anonymous"),), model.memory.anonymous


def _device_memory(model: ModelSample) -> Rows:
    for use in model.memory.devices:
        for kind, value in (("weights", use.weights), ("context", use.context), ("compute", use.compute)):
            yield (("device", use.device), ("kind", kind)), value


_LLAMACPP: tuple[tuple[str, str, str, Callable[[ModelSample], float]], ...] = (
    ("prompt_tokens_total", "counter", "Prompt tokens computed", lambda m: m.counters.prompt_tokens),
    (
        "prompt_tokens_cached_total",
        "counter",
        "Prompt tokens taken from the cache",
        lambda m: m.counters.prompt_tokens_cached,
    ),
    ("prompt_seconds_total", "counter", "Seconds spent computing prompts", lambda m: m.counters.prompt_seconds),
    ("tokens_predicted_total", "counter", "Tokens generated", lambda m: m.counters.predicted_tokens),
    (
        "tokens_predicted_seconds_total",
        "counter",
        "Seconds spent generating",
        lambda m: m.counters.predicted_seconds,
    ),
    ("n_decode_total", "counter", "Decode steps", lambda m: m.counters.decode_steps),
    (
        "spec_decode_num_draft_tokens_total",
        "counter",
        "Tokens proposed by drafts",
        lambda m: m.counters.draft_tokens,
    ),
    (
        "spec_decode_num_accepted_tokens_total",
        "counter",
        "Tokens of drafts that were accepted",
        lambda m: m.counters.draft_accepted,
    ),
    ("spec_decode_num_drafts_total", "counter", "Drafts", lambda m: m.counters.drafts),
    (
        "prompt_tokens_seconds",
        "gauge",
        "Prompt tokens per second of computing, over the last minute",
        lambda m: m.prompt_rate,
    ),
    (
        "predicted_tokens_seconds",
        "gauge",
        "Generated tokens per second, over the last minute",
        lambda m: m.predicted_rate,
    ),
    ("requests_processing", "gauge", "Requests that are computed", lambda m: m.slots_busy),
    (
        "requests_deferred",
        "gauge",
        "Requests that wait for a slot",
        lambda m: m.waiting + max(0, m.running - m.slots_busy),
    ),
    (
        "n_busy_slots_per_decode",
        "gauge",
        "Mean number of slots per decode step",
        lambda m: m.counters.busy_slots / m.counters.decode_steps if m.counters.decode_steps else 0.0,
    ),
    ("n_tokens_max", "gauge", "Largest number of tokens in one context", lambda m: m.counters.tokens_max),
)


def _llamacpp() -> Iterator[Level[ModelSample]]:
    """The names that llama-server's dashboards know, with a `model` label. No scrape resets any of them.

    A model that has not run yet has none, and one without a worker no levels, as with llama-server: hundreds of models
    in a folder cost little.
    """
    for name, kind, documentation, value in _LLAMACPP:
        rows = _once_it_ran(value) if kind == "counter" else _with_a_worker(value)
        yield Level(f"llamacpp:{name}", kind, documentation, rows)


def _once_it_ran(value: Callable[[ModelSample], float]) -> Callable[[ModelSample], Rows]:
    return lambda model: (((), value(model)),) if model.memory.resident or model.counters.decode_steps else ()

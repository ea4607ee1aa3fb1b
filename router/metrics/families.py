"""From a snapshot to lines of text: gauges are levels of now, `llamacpp:` counters the workers' totals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from router.metrics.snapshot import ModelSample, Snapshot

Labels = tuple[tuple[str, str], ...]
Rows = Iterable[tuple[Labels, float]]


@dataclass(frozen=True, slots=True)
class Level:
    """One family: its name, its type for Prometheus, what it means, and its rows in a snapshot."""

    name: str
    kind: str
    documentation: str
    rows: Callable[[Snapshot], Rows]

    @property
    def header(self) -> str:
        return f"# HELP {self.name} {self.documentation}\n# TYPE {self.name} {self.kind}\n"


def levels(states: Iterable[str]) -> tuple[Level, ...]:
    """All families that are made from snapshots; `states` are the words that a model's state can be."""
    return (*_own(tuple(states)), *_llamacpp())


def _gauge(name: str, documentation: str, rows: Callable[[Snapshot], Rows]) -> Level:
    return Level(f"llamaherd_{name}", "gauge", documentation, rows)


def _per_model(value: Callable[[ModelSample], float]) -> Callable[[Snapshot], Rows]:
    return lambda snapshot: (((("model", model.model),), value(model)) for model in snapshot.models)


def _single(value: Callable[[Snapshot], float]) -> Callable[[Snapshot], Rows]:
    return lambda snapshot: (((), value(snapshot)),)


def _own(states: tuple[str, ...]) -> Iterator[Level]:
    yield _gauge("build_info", "What is running", lambda snapshot: (((("version", snapshot.version),), 1),))
    yield _gauge("model_state", "1 for the state that the model is in", lambda snapshot: _states(snapshot, states))
    for name, documentation, value in _MODEL_GAUGES:
        yield _gauge(name, documentation, _per_model(value))
    yield _gauge(
        "model_memory_bytes",
        "Memory of the worker's process; resident includes mapped files, anonymous does not",
        _memory,
    )
    yield _gauge("model_device_memory_bytes", "What the model holds on each device, by use", _device_memory)
    yield _gauge(
        "device_budget_bytes",
        "Memory that models may use",
        lambda snapshot: (((("device", device.device),), device.budget) for device in snapshot.devices),
    )
    yield _gauge(
        "device_reserved_bytes",
        "Memory that is reserved for resident models",
        lambda snapshot: (((("device", device.device),), device.reserved) for device in snapshot.devices),
    )
    yield _gauge(
        "download_bytes",
        "Bytes that are there",
        lambda snapshot: (((("download", item.reference),), item.done) for item in snapshot.downloads),
    )
    yield _gauge(
        "download_size_bytes",
        "Bytes that there will be",
        lambda snapshot: (((("download", item.reference),), item.total) for item in snapshot.downloads),
    )
    yield _gauge("spare_workers", "Warm workers that wait for a model", _single(lambda s: s.spare_workers))
    yield _gauge("streams", "Answers held for their readers", _single(lambda s: s.streams))


_MODEL_GAUGES: tuple[tuple[str, str, Callable[[ModelSample], float]], ...] = (
    ("model_slots", "Slots of the model", lambda m: m.slots),
    ("model_slots_busy", "Slots that run a sequence", lambda m: m.slots_busy),
    ("model_threads", "Threads that the worker computes with", lambda m: m.threads),
    ("model_pinned", "Whether the model is never evicted", lambda m: m.pinned),
    ("model_kv_cells", "Cells of the KV cache", lambda m: m.kv_total),
    ("model_kv_cells_used", "Cells of the KV cache that hold a token", lambda m: m.kv_used),
    ("load_progress_ratio", "How far the load has come, 0 to 1", lambda m: m.load_progress),
    ("requests_running", "Requests that a worker has", lambda m: m.running),
    ("queue_requests", "Requests that wait in the gateway", lambda m: m.waiting),
    ("queue_oldest_seconds", "How long the oldest of them has waited", lambda m: m.oldest_wait),
)


def _states(snapshot: Snapshot, states: tuple[str, ...]) -> Rows:
    for model in snapshot.models:
        for state in states:
            yield (("model", model.model), ("state", state)), model.state == state


def _memory(snapshot: Snapshot) -> Rows:
    for model in snapshot.models:
        if model.memory.resident:
            yield (("model", model.model), ("kind", "resident")), model.memory.resident
            yield (("model", model.model), ("kind", "anonymous")), model.memory.anonymous


def _device_memory(snapshot: Snapshot) -> Rows:
    for model in snapshot.models:
        for use in model.memory.devices:
            for kind, value in (("weights", use.weights), ("context", use.context), ("compute", use.compute)):
                yield (("model", model.model), ("device", use.device), ("kind", kind)), value


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


def _llamacpp() -> Iterator[Level]:
    """The names that llama-server's dashboards know, with a `model` label. No scrape resets any of them.

    A model that has not run yet has none, as with llama-server: hundreds of models in a folder cost little.
    """
    for name, kind, documentation, value in _LLAMACPP:
        yield Level(f"llamacpp:{name}", kind, documentation, _per_model_that_ran(value))


def _per_model_that_ran(value: Callable[[ModelSample], float]) -> Callable[[Snapshot], Rows]:
    return lambda snapshot: (
        ((("model", model.model),), value(model))
        for model in snapshot.models
        if model.memory.resident or model.counters.decode_steps
    )

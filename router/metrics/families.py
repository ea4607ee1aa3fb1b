"""From a snapshot to metric families: pure. Gauges are levels of now, counters come from the workers' totals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric

from router.metrics.snapshot import ModelSample, Snapshot

States = Iterable[str]


def families(snapshot: Snapshot, states: States) -> Iterator[Metric]:
    """All families of our own; `states` are the words that a model's state can be."""
    build = InfoMetricFamily("llamaherd_build", "What is running")
    build.add_metric([], {"version": snapshot.version})
    yield build
    yield _states(snapshot.models, tuple(states))
    for name, documentation, value in _MODEL_GAUGES:
        yield _per_model(name, documentation, snapshot.models, value)
    yield _memory(snapshot.models)
    yield _device_memory(snapshot.models)
    yield _devices(snapshot)
    yield _reserved(snapshot)
    yield from _downloads(snapshot)
    yield GaugeMetricFamily(
        "llamaherd_spare_workers", "Warm workers that wait for a model", value=snapshot.spare_workers
    )
    yield GaugeMetricFamily("llamaherd_streams", "Answers held for their readers", value=snapshot.streams)


_MODEL_GAUGES: tuple[tuple[str, str, Callable[[ModelSample], float]], ...] = (
    ("llamaherd_model_slots", "Slots of the model", lambda m: m.slots),
    ("llamaherd_model_slots_busy", "Slots that run a sequence", lambda m: m.slots_busy),
    ("llamaherd_model_threads", "Threads that the worker computes with", lambda m: m.threads),
    ("llamaherd_model_pinned", "Whether the model is never evicted", lambda m: m.pinned),
    ("llamaherd_model_kv_cells", "Cells of the KV cache", lambda m: m.kv_total),
    ("llamaherd_model_kv_cells_used", "Cells of the KV cache that hold a token", lambda m: m.kv_used),
    ("llamaherd_load_progress_ratio", "How far the load has come, 0 to 1", lambda m: m.load_progress),
    ("llamaherd_requests_running", "Requests that a worker has", lambda m: m.running),
    ("llamaherd_queue_requests", "Requests that wait in the gateway", lambda m: m.waiting),
    ("llamaherd_queue_oldest_seconds", "How long the oldest of them has waited", lambda m: m.oldest_wait),
)


def _per_model(
    name: str, documentation: str, models: Iterable[ModelSample], value: Callable[[ModelSample], float]
) -> Metric:
    family = GaugeMetricFamily(name, documentation, labels=["model"])
    for model in models:
        family.add_metric([model.model], value(model))
    return family


def _states(models: Iterable[ModelSample], states: tuple[str, ...]) -> Metric:
    family = GaugeMetricFamily(
        "llamaherd_model_state", "1 for the state that the model is in", labels=["model", "state"]
    )
    for model in models:
        for state in states:
            family.add_metric([model.model, state], model.state == state)
    return family


def _memory(models: Iterable[ModelSample]) -> Metric:
    family = GaugeMetricFamily(
        "llamaherd_model_memory_bytes",
        "Memory of the worker's process; resident includes mapped files, anonymous does not",
        labels=["model", "kind"],
    )
    for model in models:
        if model.memory.resident:
            family.add_metric([model.model, "resident"], model.memory.resident)
            family.add_metric([model.model, "anonymous"], model.memory.anonymous)
    return family


def _device_memory(models: Iterable[ModelSample]) -> Metric:
    family = GaugeMetricFamily(
        "llamaherd_model_device_memory_bytes",
        "What the model holds on each device, by use",
        labels=["model", "device", "kind"],
    )
    for model in models:
        for use in model.memory.devices:
            for kind, value in (("weights", use.weights), ("context", use.context), ("compute", use.compute)):
                family.add_metric([model.model, use.device, kind], value)
    return family


def _devices(snapshot: Snapshot) -> Metric:
    family = GaugeMetricFamily("llamaherd_device_budget_bytes", "Memory that models may use", labels=["device"])
    for device in snapshot.devices:
        family.add_metric([device.device], device.budget)
    return family


def _reserved(snapshot: Snapshot) -> Metric:
    family = GaugeMetricFamily(
        "llamaherd_device_reserved_bytes", "Memory that is reserved for resident models", labels=["device"]
    )
    for device in snapshot.devices:
        family.add_metric([device.device], device.reserved)
    return family


def _downloads(snapshot: Snapshot) -> Iterator[Metric]:
    done = GaugeMetricFamily("llamaherd_download_bytes", "Bytes that are there", labels=["download"])
    size = GaugeMetricFamily("llamaherd_download_size_bytes", "Bytes that there will be", labels=["download"])
    for download in snapshot.downloads:
        done.add_metric([download.reference], download.done)
        size.add_metric([download.reference], download.total)
    yield done
    yield size


_LLAMACPP_COUNTERS: tuple[tuple[str, str, Callable[[ModelSample], float]], ...] = (
    ("prompt_tokens", "Prompt tokens computed", lambda m: m.counters.prompt_tokens),
    ("prompt_tokens_cached", "Prompt tokens taken from the cache", lambda m: m.counters.prompt_tokens_cached),
    ("prompt_seconds", "Seconds spent computing prompts", lambda m: m.counters.prompt_seconds),
    ("tokens_predicted", "Tokens generated", lambda m: m.counters.predicted_tokens),
    ("tokens_predicted_seconds", "Seconds spent generating", lambda m: m.counters.predicted_seconds),
    ("n_decode", "Decode steps", lambda m: m.counters.decode_steps),
    ("spec_decode_num_draft_tokens", "Tokens proposed by drafts", lambda m: m.counters.draft_tokens),
    ("spec_decode_num_accepted_tokens", "Tokens of drafts that were accepted", lambda m: m.counters.draft_accepted),
    ("spec_decode_num_drafts", "Drafts", lambda m: m.counters.drafts),
)

_LLAMACPP_GAUGES: tuple[tuple[str, str, Callable[[ModelSample], float]], ...] = (
    ("prompt_tokens_seconds", "Prompt tokens per second of computing, over the last minute", lambda m: m.prompt_rate),
    ("predicted_tokens_seconds", "Generated tokens per second, over the last minute", lambda m: m.predicted_rate),
    ("requests_processing", "Requests that are computed", lambda m: m.slots_busy),
    ("requests_deferred", "Requests that wait for a slot", lambda m: m.waiting + max(0, m.running - m.slots_busy)),
    (
        "n_busy_slots_per_decode",
        "Mean number of slots per decode step",
        lambda m: m.counters.busy_slots / m.counters.decode_steps if m.counters.decode_steps else 0.0,
    ),
    ("n_tokens_max", "Largest number of tokens in one context", lambda m: m.counters.tokens_max),
)


def llamacpp_families(models: Iterable[ModelSample]) -> Iterator[Metric]:
    """The names that llama-server's dashboards know, with a `model` label. No scrape resets any of them.

    A model that has not run yet has none, as with llama-server: hundreds of models in a folder cost little.
    """
    models = tuple(model for model in models if model.memory.resident or model.counters.decode_steps)
    for name, documentation, value in _LLAMACPP_COUNTERS:
        family = CounterMetricFamily(f"llamacpp:{name}", documentation, labels=["model"])
        for model in models:
            family.add_metric([model.model], value(model))
        yield family
    for name, documentation, value in _LLAMACPP_GAUGES:
        yield _per_model(f"llamacpp:{name}", documentation, models, value)

from __future__ import annotations

import asyncio
import shutil
import subprocess

import pytest
from msgspec import structs
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from protocol.errors import ErrorKind, WireError
from protocol.generate import ChoiceEnd, Completed, Delta, Parked, ResumePoint, Usage
from protocol.status import Counters, DeviceMemory, MemoryUse
from router.metrics import exposition, lines, series
from router.metrics.exposition import Metrics
from router.metrics.families import Rows
from router.metrics.lines import number
from router.metrics.observations import Observations
from router.metrics.snapshot import DeviceSample, DownloadSample, ModelSample, Snapshot
from router.metrics.totals import RATE_WINDOW, ModelTotals, add
from router.metrics.trace import TracedStream
from router.scheduling.effects import Phase

GIB = 1 << 30


def busy_snapshot(models: int = 2) -> Snapshot:
    return Snapshot(
        version="1.2.3",
        models=tuple(
            ModelSample(
                model=f"model-{number}",
                state="ready",
                has_worker=True,
                slots=4,
                slots_busy=2,
                running=3,
                waiting=5,
                oldest_wait=1.5,
                kv_used=100,
                kv_total=4096,
                memory=MemoryUse(2 * GIB, GIB, (DeviceMemory("CUDA0", 3, 2, 1),)),
                counters=Counters(prompt_tokens=10, predicted_tokens=7, decode_steps=4, busy_slots=10, tokens_max=99),
                predicted_rate=12.5,
            )
            for number in range(models)
        ),
        devices=(DeviceSample("host", 8 * GIB, 3 * GIB),),
        downloads=(DownloadSample("user/repo:Q4_K_M", 50, 200),),
        spare_workers=1,
        streams=6,
    )


class Source:
    """Snapshots for `Metrics`, and how often they were taken."""

    def __init__(self) -> None:
        self.snapshot = busy_snapshot()
        self.taken = 0

    def __call__(self) -> Snapshot:
        self.taken += 1
        return self.snapshot


def read(text: bytes) -> dict[tuple[str, ...], float]:
    """(name, then label values in the order of label names) -> value."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def scrape(metrics: Metrics) -> dict[tuple[str, ...], float]:
    return read(asyncio.run(metrics.scrape()))


def test_a_scrape_shows_every_model_under_its_label() -> None:
    source = Source()
    values = scrape(Metrics(Observations(), source))
    assert values["llamaherd_model_state", "model-0", "ready"] == 1
    assert sum(value for key, value in values.items() if key[:2] == ("llamaherd_model_state", "model-1")) == 1
    assert values["llamaherd_queue_requests", "model-1"] == 5
    assert values["llamaherd_queue_oldest_seconds", "model-1"] == 1.5
    assert values["llamaherd_model_memory_bytes", "resident", "model-0"] == 2 * GIB
    assert values["llamaherd_model_device_memory_bytes", "CUDA0", "weights", "model-0"] == 3
    assert values["llamaherd_device_reserved_bytes", "host"] == 3 * GIB
    assert values["llamaherd_download_bytes", "user/repo:Q4_K_M"] == 50
    assert values["llamaherd_build_info", "1.2.3"] == 1
    assert values["llamaherd_spare_workers",] == 1
    assert values["process_resident_memory_bytes",] > 0


def test_the_names_of_llama_server_are_kept() -> None:
    values = scrape(Metrics(Observations(), Source()))
    assert values["llamacpp:prompt_tokens_total", "model-0"] == 10
    assert values["llamacpp:tokens_predicted_total", "model-0"] == 7
    assert values["llamacpp:n_busy_slots_per_decode", "model-0"] == 2.5
    assert values["llamacpp:n_tokens_max", "model-0"] == 99
    assert values["llamacpp:requests_processing", "model-0"] == 2
    assert values["llamacpp:requests_deferred", "model-0"] == 6
    assert values["llamacpp:predicted_tokens_seconds", "model-0"] == 12.5


def test_a_model_that_never_ran_has_a_state_and_no_counters() -> None:
    source = Source()
    source.snapshot = Snapshot("1", (ModelSample("idle", "unloaded"),))
    values = scrape(Metrics(Observations(), source))
    assert values["llamaherd_model_state", "idle", "unloaded"] == 1
    assert not [key for key in values if key[0].startswith("llamacpp:")]


def test_a_scrape_takes_one_snapshot_and_repeats_itself() -> None:
    source = Source()
    metrics = Metrics(Observations(), source)
    assert source.taken == 0
    first = scrape(metrics)
    assert source.taken == 1
    second = scrape(metrics)
    own = {key for key in first if key[0].startswith("llama")}
    assert {key: first[key] for key in own} == {key: second[key] for key in own}


async def test_the_loop_goes_on_during_a_scrape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "TURN", 0.0)
    source = Source()
    source.snapshot = busy_snapshot(50)
    turns = 0
    done = False

    async def count() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)  # noqa: TID251

    metrics = Metrics(Observations(), source)
    counting = asyncio.create_task(count())
    await metrics.scrape()
    done = True
    await counting
    assert turns > 50, "writing a model, or a family, holds nobody up for longer than that takes"


def test_a_model_is_written_again_when_its_sample_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    original = lines.write

    def noting(name: str, rows: Rows, labels: str = "") -> bytes:
        if name == "llamaherd_model_slots":
            written.append(labels)
        return original(name, rows, labels)

    monkeypatch.setattr(lines, "write", noting)
    source = Source()
    metrics = Metrics(Observations(), source)
    first = scrape(metrics)
    assert written == ['model="model-0"', 'model="model-1"']
    same = source.snapshot
    source.snapshot = structs.replace(same, models=(same.models[0], structs.replace(same.models[1], slots=7)))
    second = scrape(metrics)
    assert written[2:] == ['model="model-1"']
    assert (first["llamaherd_model_slots", "model-1"], second["llamaherd_model_slots", "model-1"]) == (4, 7)
    assert second["llamaherd_model_slots", "model-0"] == 4
    source.snapshot = structs.replace(same, models=same.models[1:])
    assert ("llamaherd_model_slots", "model-0") not in scrape(metrics)
    source.snapshot = structs.replace(same, models=())
    assert ("llamaherd_model_slots", "model-1") not in scrape(metrics)


def test_each_family_comes_once_with_all_its_lines() -> None:
    metrics = Metrics(Observations(), Source())
    observe_everything(metrics)
    families = list(text_string_to_metric_families(asyncio.run(metrics.scrape()).decode()))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "the parser begins a family anew where its lines are not together"
    assert not [family.name for family in families if family.type == "unknown"]


def test_what_did_not_change_is_not_rendered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []
    original = series.render

    def noting(family: Metric) -> bytes:
        rendered.append(family.name)
        return original(family)

    metrics = Metrics(Observations(), Source())
    observe_everything(metrics)
    metrics.observations.first_token("other", 1.0)
    first = scrape(metrics)
    monkeypatch.setattr(series, "render", noting)
    assert scrape(metrics)["llamaherd_first_token_seconds_count", "m"] == 1
    assert rendered == []
    metrics.observations.first_token("other", 2.0)
    changed = scrape(metrics)
    assert rendered == ["llamaherd_first_token_seconds"]
    assert changed["llamaherd_first_token_seconds_sum", "other"] == 3.0
    assert changed["llamaherd_first_token_seconds_sum", "m"] == first["llamaherd_first_token_seconds_sum", "m"]


def test_a_scrape_that_breaks_off_loses_nothing() -> None:
    observations = Observations()
    for model in ("a", "b"):
        observations.first_token(model, 1.0)
    pieces = observations.first_token_after.text()
    assert next(pieces) == b"", "one of the two is rendered"
    pieces.close()
    values = read(b"".join(observations.text()))
    assert values["llamaherd_first_token_seconds_count", "a"] == values["llamaherd_first_token_seconds_count", "b"] == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (True, "1"), (1.5, "1.5"), (1e22, "1e+22"), (float("inf"), "+Inf"), (float("nan"), "NaN")],
)
def test_numbers_are_written_as_prometheus_reads_them(value: float, text: str) -> None:
    assert number(value) == text
    assert str(float(text)) == str(float(value))


def test_text_of_names_is_escaped() -> None:
    source = Source()
    source.snapshot = Snapshot("1", (ModelSample('a"b\\c\nd', "ready", has_worker=True),))
    assert scrape(Metrics(Observations(), source))["llamaherd_model_slots", 'a"b\\c\nd'] == 0


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_promtool_finds_nothing_but_the_colon_of_llama_servers_names() -> None:
    metrics = Metrics(Observations(), Source())
    observe_everything(metrics)
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=asyncio.run(metrics.scrape()), capture_output=True, timeout=60
    )
    complaints = [line for line in done.stderr.decode().splitlines() if "should not contain ':'" not in line]
    assert complaints == []


def observe_everything(metrics: Metrics) -> None:
    seen = metrics.observations
    seen.dispatched("m", 0.1)
    seen.first_token("m", 0.2)
    seen.gaps("m")(0.03)
    seen.request_ended("m", "eos", 1.0)
    seen.request_retried("m")
    seen.loaded("m", 2.0)
    seen.load_failed("m")
    seen.evicted("m", "swap")
    seen.evicted("m", "idle")
    seen.worker_ended("m", "crashed")
    seen.worker_restarted("m")
    seen.download_ended("failed")


def test_events_are_counted() -> None:
    metrics = Metrics(Observations(), Source())
    observe_everything(metrics)
    values = scrape(metrics)
    assert values["llamaherd_swaps_total",] == 1
    assert values["llamaherd_evictions_total", "m", "idle"] == 1
    assert values["llamaherd_worker_exits_total", "m", "crashed"] == 1
    assert values["llamaherd_loads_total", "m", "failed"] == 1
    assert values["llamaherd_load_seconds_sum", "m"] == 2.0
    assert values["llamaherd_inter_token_seconds_count", "m"] == 1
    assert values["llamaherd_downloads_finished_total", "failed"] == 1


def test_totals_outlive_workers_and_never_fall() -> None:
    totals = ModelTotals()
    totals.update("w1/1", Counters(prompt_tokens=10, tokens_max=50), 0.0)
    totals.update("w1/1", Counters(prompt_tokens=15, tokens_max=70), 1.0)
    totals.update("w1/2", Counters(prompt_tokens=3, tokens_max=20), 2.0)
    assert totals.total == Counters(prompt_tokens=18, tokens_max=70)
    totals.update("w1/3", Counters(), 3.0)
    assert totals.total == Counters(prompt_tokens=18, tokens_max=70)


def test_every_counter_is_added() -> None:
    ones = Counters(**{name: 1 for name in Counters.__struct_fields__})
    doubled = add(ones, ones)
    assert {name: getattr(doubled, name) for name in Counters.__struct_fields__ if name != "tokens_max"} == {
        name: 2 for name in Counters.__struct_fields__ if name != "tokens_max"
    }
    assert doubled.tokens_max == 1


def test_speeds_are_over_the_last_minute_with_work_whoever_asks() -> None:
    totals = ModelTotals()
    totals.update("w", Counters(prompt_tokens=1000, prompt_seconds=1.0), 0.0)
    assert totals.rates(0.0) == (0.0, 0.0)
    totals.update("w", Counters(prompt_tokens=1100, prompt_seconds=2.0, predicted_tokens=30, predicted_seconds=1.0), 2)
    assert totals.rates(2.0) == totals.rates(2.0) == (100.0, 30.0)
    assert totals.steady_until() == 2.0 + RATE_WINDOW
    assert totals.rates(2.0 + RATE_WINDOW) == (0.0, 0.0)
    assert totals.steady_until() == float("inf")


class PlainEncoder:
    media_type = "text/plain"
    streams = True
    comments = False

    def begin(self) -> bytes:
        return b"["

    def delta(self, delta: Delta) -> bytes:
        return delta.text.encode()

    def end(self, answer: object) -> bytes:
        return b"]"

    def error(self, error: WireError) -> bytes:
        return b"!"

    def comment(self, text: str) -> bytes:
        return b""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def traced(metrics: Metrics, clock: Clock) -> TracedStream:
    return TracedStream(
        1, PlainEncoder(), id="req-1", model="m", key="ci", observations=metrics.observations, clock=clock
    )


COMPLETED = Completed(1, (ChoiceEnd(0, "limit"),), Usage(prompt_tokens=12, completion_tokens=3, cached_tokens=4))


def test_a_request_leaves_its_times_in_the_histograms_and_one_line(caplog: pytest.LogCaptureFixture) -> None:
    metrics, clock = Metrics(Observations(), Source()), Clock()
    caplog.set_level("INFO")
    stream = traced(metrics, clock)
    stream.notify(Phase.QUEUED, position=2)
    clock.now += 1.0
    stream.notify(Phase.LOADING)
    clock.now += 2.0
    stream.notify(Phase.LOADING, progress=0.5)
    clock.now += 1.0
    stream.restart()
    stream.notify(Phase.RUNNING)
    clock.now += 0.5
    stream.delta(Delta(1, "a"))
    clock.now += 0.25
    stream.delta(Delta(1, "bc", n_tokens=2))
    stream.answer(COMPLETED)
    stream.fail(WireError(ErrorKind.INTERNAL, "too late to matter"))
    values = scrape(metrics)
    assert values["llamaherd_first_token_seconds_sum", "m"] == 4.5
    assert values["llamaherd_inter_token_seconds_sum", "m"] == 0.125
    assert values["llamaherd_queue_wait_seconds_sum", "m"] == 4.0
    assert values["llamaherd_requests_total", "limit", "m"] == 1
    assert values["llamaherd_request_seconds_count", "m"] == 1
    (line,) = [record for record in caplog.records if record.name == "llamaherd.request"]
    assert vars(line)["fields"] == {
        "id": "req-1",
        "model": "m",
        "end": "limit",
        "total_ms": 4750.0,
        "key": "ci",
        "queue_ms": 1000.0,
        "load_ms": 3000.0,
        "ttft_ms": 4500.0,
        "prompt_tokens": 12,
        "cached_tokens": 4,
        "completion_tokens": 3,
    }


def test_the_prefill_of_a_resident_model_is_no_wait(caplog: pytest.LogCaptureFixture) -> None:
    metrics, clock = Metrics(Observations(), Source()), Clock()
    caplog.set_level("INFO")
    stream = traced(metrics, clock)
    clock.now += 0.5
    stream.restart()
    clock.now += 3.0
    stream.delta(Delta(1, "a"))
    stream.answer(COMPLETED)
    assert scrape(metrics)["llamaherd_queue_wait_seconds_sum", "m"] == 0.5
    assert vars(caplog.records[-1])["fields"]["queue_ms"] == 500.0


def test_choices_that_grow_together_have_no_gaps_between_them() -> None:
    metrics, clock = Metrics(Observations(), Source()), Clock()
    stream = traced(metrics, clock)
    for _ in range(3):
        for index in range(4):
            stream.delta(Delta(1, "a", 1, index))
        clock.now += 0.5
    values = scrape(metrics)
    assert values["llamaherd_inter_token_seconds_count", "m"] == 2
    assert values["llamaherd_inter_token_seconds_sum", "m"] == 1.0
    assert values["llamaherd_queue_wait_seconds_count", "m"] == 1


def test_a_second_worker_is_a_retry_and_the_first_token_is_the_one_that_was_seen() -> None:
    metrics, clock = Metrics(Observations(), Source()), Clock()
    stream = traced(metrics, clock)
    stream.restart()
    assert ("llamaherd_requests_retried_total", "m") not in scrape(metrics)
    clock.now += 1
    stream.delta(Delta(1, "a"))
    clock.now += 1
    stream.restart()
    stream.delta(Delta(1, "a"))
    values = scrape(metrics)
    assert values["llamaherd_requests_retried_total", "m"] == 1
    assert values["llamaherd_queue_wait_seconds_count", "m"] == 1
    assert values["llamaherd_first_token_seconds_count", "m"] == 2


def test_a_request_that_fails_in_the_queue_counts_by_the_kind_of_its_error() -> None:
    metrics, clock = Metrics(Observations(), Source()), Clock()
    stream = traced(metrics, clock)
    clock.now += 3
    stream.fail(WireError(ErrorKind.OVERLOADED, "full"))
    values = scrape(metrics)
    assert values["llamaherd_requests_total", "overloaded", "m"] == 1
    assert values["llamaherd_queue_wait_seconds_count", "m"] == 0
    assert values["llamaherd_first_token_seconds_count", "m"] == 0


def test_parking_is_no_end_and_a_client_that_left_is_one() -> None:
    metrics, clock = Metrics(Observations(), Source()), Clock()
    stream = traced(metrics, clock)
    stream.delta(Delta(1, "a"))
    stream.notify(Phase.PARKED)
    clock.now += 7
    stream.notify(Phase.RUNNING)
    stream.gone()
    stream.gone()
    values = scrape(metrics)
    assert [key for key in values if key[0] == "llamaherd_requests_total"] == [
        ("llamaherd_requests_total", "cancelled", "m")
    ]
    assert Parked(1, ResumePoint(())).request == 1

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.status import DeviceMemory, MemoryUse, UpdateStatus, WorkerState
from router.scheduling.model import ModelEntry, Need
from router.supervision.measuring import Measurements
from router.supervision.memory import APART, MemoryReader, measure
from router.supervision.state import StateFolder

MIB = 1 << 20
PREDICTED = ModelEntry("k", ("m",), (Need("host", 100 * MIB, (("8:1", 50 * MIB),)),))


def test_the_first_reading_settles_nothing_and_two_alike_do() -> None:
    reader = MemoryReader()
    assert reader.pause(10.0) == 0.0
    first = reader.read(10.0)
    assert [device for device, _ in first.free] == ["host"]
    assert not first.settled
    assert reader.pause(10.0) == pytest.approx(APART)
    assert reader.read(10.01 + APART).settled


def test_an_old_reading_settles_nothing() -> None:
    reader = MemoryReader()
    reader.read(10.0)
    assert not reader.read(20.0).settled


def test_what_is_anonymous_is_private_and_files_stay_shared() -> None:
    entry = measure(PREDICTED, MemoryUse(resident=400 * MIB, anonymous=200 * MIB))
    assert entry is not None
    assert entry.needs == (Need("host", 200 * MIB, (("8:1", 50 * MIB),), measured=True),)


def test_an_empty_cache_counts_as_full() -> None:
    use = MemoryUse(10, 80 * MIB, (DeviceMemory("host", 50 * MIB, 90 * MIB, 20 * MIB),))
    entry = measure(PREDICTED, use)
    assert entry is not None
    assert entry.needs[0].private == 110 * MIB  # the mapped weights are charged by file


def test_devices_are_measured_too() -> None:
    entry = measure(PREDICTED, MemoryUse(10, 60 * MIB, (DeviceMemory("CUDA0", 500, 300, 20),)))
    assert entry is not None
    assert entry.needs[1] == Need("CUDA0", 820, measured=True)


def test_only_growth_is_news() -> None:
    entry = measure(PREDICTED, MemoryUse(anonymous=200 * MIB))
    assert entry is not None
    assert measure(entry, MemoryUse(anonymous=150 * MIB)) is None
    assert measure(entry, MemoryUse(anonymous=205 * MIB)) is None
    assert measure(entry, MemoryUse(anonymous=220 * MIB)) is not None
    assert measure(entry, MemoryUse()) is None


def status(state: WorkerState, anonymous: int) -> UpdateStatus:
    return UpdateStatus(1, state, memory=MemoryUse(anonymous=anonymous))


def test_only_a_loaded_model_is_measured() -> None:
    measurements = Measurements(None)
    measurements.configure((PREDICTED,))
    assert measurements.take("k", status(WorkerState.LOADING, 200 * MIB)) is None
    assert measurements.take("unknown", status(WorkerState.READY, 200 * MIB)) is None
    event = measurements.take("k", status(WorkerState.READY, 200 * MIB))
    assert event is not None
    assert event.entry.needs[0].private == 200 * MIB
    assert measurements.take("k", status(WorkerState.READY, 200 * MIB)) is None


def test_what_was_measured_is_known_after_a_reload_and_in_the_next_life(tmp_path: Path) -> None:
    measurements = Measurements(StateFolder(tmp_path))
    measurements.configure((PREDICTED,))
    measurements.take("k", status(WorkerState.READY, 200 * MIB))
    for later in (measurements, Measurements(StateFolder(tmp_path))):
        (entry,) = later.configure((PREDICTED,))
        assert entry.needs[0].private == 200 * MIB
        assert entry.needs[0].measured

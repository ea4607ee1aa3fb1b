"""Sizes, status, tallies, vectors: the small pure parts."""

from __future__ import annotations

import numpy as np
import pytest

from protocol.load import LoadParameters
from protocol.sampling import SamplingParameters
from protocol.status import UpdateStatus, WorkerState
from worker.held import HeldRequests
from worker.llama_sampler import is_greedy
from worker.placement import (
    CONTEXT_UNIT,
    batch_sizes,
    default_context,
    sequence_count,
    shelf_bytes,
)
from worker.status import StatusBoard, StatusReporter
from worker.tally import Tally
from worker.vectors import normalize, pack


@pytest.mark.parametrize(
    ("trained", "per_token", "available", "most", "expected"),
    [
        (8192, 1000, 1 << 40, 32768, 8192),
        (131072, 1000, 1 << 40, 32768, 32768),
        (0, 1000, 1 << 40, 32768, 32768),
        (32768, 100_000, 2 << 30, 32768, 8192),
        (32768, 100_000, 0, 32768, 2048),
        (512, 100_000, 0, 32768, 512),
    ],
)
def test_a_context_nobody_asked_for(trained: int, per_token: int, available: int, most: int, expected: int) -> None:
    assert default_context(trained, per_token, available, most) == expected


def test_sequences_are_a_power_of_two_beyond_the_slots() -> None:
    for slots in (1, 4, 8, 16, 60):
        for has_states in (False, True):
            count = sequence_count(slots, has_states)
            assert count & (count - 1) == 0
            assert slots + 4 <= count <= 256


def test_batches_fit_the_context() -> None:
    assert batch_sizes(LoadParameters("m"), 8192) == (2048, 512)
    assert batch_sizes(LoadParameters("m"), 256) == (256, 256)
    assert batch_sizes(LoadParameters("m", embeddings=True), 500) == (2 * CONTEXT_UNIT, 2 * CONTEXT_UNIT)


def test_the_shelf_takes_a_small_share() -> None:
    assert shelf_bytes(1 << 30) < (1 << 30) // 10
    assert shelf_bytes(1 << 60) == 1 << 30


def test_revisions_grow_whoever_asks() -> None:
    board = StatusBoard(lambda: (4, 5))
    sent: list[UpdateStatus] = []
    reporter = StatusReporter(board, sent.append)
    reporter.change(WorkerState.LOADING)
    board.set_progress("weights", 0.5)
    answer = board.snapshot(9)
    reporter.change(WorkerState.READY)
    assert [status.revision for status in (sent[0], answer, sent[1])] == [1, 2, 3]
    assert (answer.answers, answer.progress, answer.stage) == (9, 0.5, "weights")
    assert (sent[1].progress, sent[1].stage) == (0.0, "")
    assert sent[1].held == (4, 5)


def test_numbers_are_sent_at_most_four_times_a_second() -> None:
    sent: list[UpdateStatus] = []
    reporter = StatusReporter(StatusBoard(tuple), sent.append)
    for _ in range(100):
        reporter.tick()
    assert len(sent) == 1


def test_cancels_of_requests_that_are_not_held_are_ignored() -> None:
    held = HeldRequests()
    held.cancel(1)
    held.add(1)
    assert not held.is_cancelled(1)
    held.cancel(1)
    assert held.is_cancelled(1)
    held.remove(1)
    held.add(1)
    assert not held.is_cancelled(1)


def test_a_mixed_step_is_charged_by_tokens() -> None:
    tally = Tally()
    tally.step(5, n_decoding=5, n_prompt=15, ms=100.0, cells=80)
    counters = tally.counters()
    assert counters.prompt_seconds == pytest.approx(0.075)
    assert counters.predicted_seconds == pytest.approx(0.025)
    assert (counters.busy_slots, counters.decode_steps, counters.tokens_max) == (5, 1, 80)


@pytest.mark.parametrize("norm", [1, 2, 3])
def test_norms(norm: int) -> None:
    vector = np.array([3.0, -4.0, 0.5], np.float32)
    assert np.power(np.abs(normalize(vector, norm)), norm).sum() == pytest.approx(1.0, abs=1e-6)


def test_vectors_are_cut_before_they_are_normalised() -> None:
    vector = np.array([3.0, 4.0, 100.0], np.float32)
    assert np.frombuffer(pack(vector, 2, 2), "<f4") == pytest.approx([0.6, 0.8])
    assert np.frombuffer(pack(vector, -1, 0), "<f4") == pytest.approx(vector)
    assert not np.frombuffer(pack(np.zeros(3, np.float32), 2, 0), "<f4").any()


@pytest.mark.parametrize(
    ("parameters", "greedy"),
    [
        (SamplingParameters(), False),
        (SamplingParameters(temperature=0.0), True),
        (SamplingParameters(temperature=0.0, repeat_penalty=1.2), False),
        (SamplingParameters(temperature=0.0, repeat_penalty=1.2, repeat_last_n=0), True),
        (SamplingParameters(temperature=0.0, mirostat=2), False),
        (SamplingParameters(temperature=0.0, dry_multiplier=0.8), False),
        (SamplingParameters(temperature=0.0, xtc_probability=0.5), False),
    ],
)
def test_what_is_greedy(parameters: SamplingParameters, greedy: bool) -> None:
    assert is_greedy(parameters) is greedy

"""Rate shares, pacing, back-off, the watchdog, the speedometer, deletion, space: pure, with the time given."""

from __future__ import annotations

from pathlib import Path

import pytest

from downloader.digest import ContentHash, pieces
from downloader.rate import Pacer, shares
from downloader.removal import doomed_paths
from downloader.retry import Retry, backoff
from downloader.space import free_bytes, no_space, size_text
from downloader.speed import Speedometer
from downloader.watchdog import Watchdog
from protocol.download import Space
from protocol.errors import ErrorKind


class FakeTime:
    """A clock that waiting moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def test_no_limit_is_no_share() -> None:
    assert shares(0, {1: 5.0, 2: -1.0}) == {1: 0.0, 2: 0.0}
    assert shares(10, {}) == {}


def test_equal_shares_until_something_is_known() -> None:
    assert shares(90, {1: -1.0, 2: -1.0, 3: -1.0}) == {1: 30.0, 2: 30.0, 3: 30.0}


def test_what_a_slow_job_leaves_goes_to_the_others() -> None:
    given = shares(100, {1: 8.0, 2: 50.0, 3: -1.0})
    assert given == {1: 10.0, 2: 45.0, 3: 45.0}


def test_a_job_that_stands_still_can_start_again() -> None:
    given = shares(100, {1: 0.0, 2: 95.0})
    assert given[1] == 5.0
    assert given[2] == 95.0


def test_jobs_that_were_slow_together_may_be_fast_together() -> None:
    assert shares(100, {1: 10.0, 2: 10.0}) == {1: 50.0, 2: 50.0}
    assert shares(100, {1: 0.0}) == {1: 100.0}


def test_shares_never_exceed_the_limit() -> None:
    for measured in ({1: 0.0, 2: 0.0}, {1: 100.0, 2: 100.0}, {1: 3.0, 2: 40.0, 3: 60.0, 4: -1.0}):
        assert sum(shares(100, measured).values()) <= 100 + 1e-9


def test_a_paced_stream_takes_its_time() -> None:
    time = FakeTime()
    pacer = Pacer(time.wait, time)
    pacer.rate = 1000.0
    for _ in range(50):
        pacer.spend(100)
    assert time.now == pytest.approx(105.0, abs=0.2)


def test_silence_is_not_saved_up() -> None:
    time = FakeTime()
    pacer = Pacer(time.wait, time)
    pacer.rate = 1000.0
    pacer.spend(100)
    time.wait(60)
    began = time.now
    for _ in range(10):
        pacer.spend(1000)
    assert time.now - began == pytest.approx(9.9, abs=0.2)


def test_a_limit_that_is_lifted_frees_a_stream_that_waits() -> None:
    time = FakeTime()

    def lift(seconds: float) -> None:
        time.wait(seconds)
        pacer.rate = 0.0

    pacer = Pacer(lift, time)
    pacer.rate = 1.0
    pacer.spend(1_000_000)
    assert time.now < 101


def test_failures_count_only_without_progress() -> None:
    retry = Retry().failed(0).failed(0)
    assert retry.failures == 2
    retry = retry.failed(500)
    assert retry.failures == 1
    assert retry.failed(500).failures == 2
    assert retry.failed(300).failures == 2


def test_back_off_doubles_up_to_its_limit_and_obeys_the_hub() -> None:
    assert [backoff(n, 1.0, 8.0, 0.0) for n in (1, 2, 3, 4, 5, 60)] == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    assert backoff(1, 1.0, 8.0, 1.0) == 1.5
    assert backoff(1, 1.0, 8.0, 0.0, retry_after=90.0) == 90.0


def test_the_watchdog_tells_slow_from_still() -> None:
    dog = Watchdog(60.0, 0.0)
    assert not dog.saw(0, 1.0)
    assert not dog.saw(1, 50.0)
    assert not dog.saw(2, 109.0)
    assert not dog.saw(2, 168.0)
    assert dog.saw(2, 169.0)


def test_the_watchdog_sleeps_while_no_bytes_are_due() -> None:
    dog = Watchdog(60.0, 0.0)
    assert not dog.saw(5, 1.0)
    assert not dog.saw(5, 500.0, expected=False)
    assert not dog.saw(5, 559.0)
    assert dog.saw(5, 560.0)


def test_speed_is_of_the_last_seconds_and_ignores_what_was_there() -> None:
    speed = Speedometer()
    assert speed.rate == 0.0
    assert speed.eta(100) == -1.0
    speed.saw(1_000_000, 0.0)
    assert speed.rate == 0.0
    for second in range(1, 11):
        speed.saw(1_000_000 + 100 * second, float(second))
    assert speed.rate == pytest.approx(100.0)
    assert speed.eta(500) == pytest.approx(5.0)
    for second in range(11, 30):
        speed.saw(1_001_000, float(second))
    assert speed.rate == 0.0


def test_a_file_begun_anew_starts_the_reading_anew() -> None:
    speed = Speedometer()
    speed.saw(500, 0.0)
    speed.saw(900, 1.0)
    speed.saw(100, 2.0)
    speed.saw(200, 3.0)
    assert speed.rate == pytest.approx(100.0)


def test_companions_go_with_the_last_model() -> None:
    existing = {"a-Q4_0.gguf", "a-Q8_0.gguf", "mmproj-F16.gguf", "mtp-a.gguf", "README.md"}
    assert doomed_paths(existing, ["a-Q4_0.gguf"]) == {"a-Q4_0.gguf"}
    left = existing - {"a-Q4_0.gguf"}
    assert doomed_paths(left, ["a-Q8_0.gguf"]) == {"a-Q8_0.gguf", "mmproj-F16.gguf", "mtp-a.gguf"}


def test_a_shard_takes_its_siblings_and_nobody_else() -> None:
    shards = {f"a-Q8_0-{index:05d}-of-00003.gguf" for index in (1, 2, 3)}
    others = {"a-Q8_0.gguf", "a-Q8_0-00001-of-00002.gguf"}
    assert doomed_paths(shards | others, ["a-Q8_0-00001-of-00003.gguf"]) == shards
    assert doomed_paths(shards, ["nothing.gguf"]) == set()


def test_space_fits_with_margin_and_reservations() -> None:
    assert Space(missing=10, free=30, reserved=10, margin=10).fits
    assert not Space(missing=11, free=30, reserved=10, margin=10).fits
    assert Space(missing=0, free=0, reserved=10, margin=10).fits


def test_a_refusal_names_the_numbers(tmp_path: Path) -> None:
    fault = no_space(Space(missing=4_100_000_000, free=2_000_000, reserved=1_500, margin=256), tmp_path)
    assert fault.kind is ErrorKind.NO_SPACE
    assert fault.retryable
    for text in ("4.1 GB needed", "1.5 kB for the downloads before it", "2.0 MB free", "256 B"):
        assert text in fault.message
    assert size_text(3_000_000_000_000) == "3.0 TB"


def test_free_space_of_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "a" / "b") == free_bytes(tmp_path)


def test_both_kinds_of_content_names(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"hello\n")
    names = {"0" * 64: "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03"}
    names["0" * 40] = "ce013625030ba8dba906f756967f9e9ca394464a"
    for blob, name in names.items():
        content = ContentHash(blob, 6)
        for piece in pieces(file, 6):
            content.update(piece)
        assert content.name == name
        assert content.length == 6


def test_the_first_bytes_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"a" * 300_000 + b"b")
    assert b"".join(pieces(file, 300_000)) == b"a" * 300_000
    assert max(len(piece) for piece in pieces(file, 300_001)) < 300_000

from __future__ import annotations

import os
from pathlib import Path

from router.supervision.activity import ActivityMeter

STAT = "7 (a ) name) R 1 7 7 0 -1 0 {minor} 0 {major} 0 {user} {system} 0 0 20 0 1 0 100 0"


def write(proc: Path, minor: int = 0, major: int = 0, user: int = 0, system: int = 0, read: int | None = 0) -> None:
    folder = proc / "7"
    folder.mkdir(exist_ok=True)
    (folder / "stat").write_text(STAT.format(minor=minor, major=major, user=user, system=system))
    if read is not None:
        (folder / "io").write_text(f"rchar: 9\nread_bytes: {read}\nwrite_bytes: 3\n")


def test_each_kind_of_work_is_seen(tmp_path: Path) -> None:
    meter = ActivityMeter(tmp_path)
    write(tmp_path)
    assert meter.has_worked(7)
    assert not meter.has_worked(7)
    write(tmp_path, user=1, system=1)
    assert meter.has_worked(7)
    write(tmp_path, user=1, system=1, minor=30, major=30)
    assert meter.has_worked(7)
    write(tmp_path, user=1, system=1, minor=30, major=30, read=4096)
    assert meter.has_worked(7)
    assert not meter.has_worked(7)


def test_little_by_little_is_work_too(tmp_path: Path) -> None:
    meter = ActivityMeter(tmp_path)
    write(tmp_path, read=None)
    meter.has_worked(7)
    write(tmp_path, user=1, read=None)
    assert not meter.has_worked(7)
    write(tmp_path, user=2, read=None)
    assert meter.has_worked(7)


def test_a_process_that_is_gone_does_not_work(tmp_path: Path) -> None:
    assert not ActivityMeter(tmp_path).has_worked(7)


def test_our_own_process_works() -> None:
    meter = ActivityMeter()
    assert meter.has_worked(os.getpid())

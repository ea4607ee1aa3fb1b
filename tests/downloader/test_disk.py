"""Disks that are full, or fill up."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.download import DownloadFailed
from protocol.errors import ErrorKind
from tests.downloader.desk import Desk
from tests.fakes.hub import FakeHub, Fault

REPO = "someone/tiny-GGUF"
MODEL = "tiny-Q4_K_M.gguf"


def content(size: int, seed: int = 1) -> bytes:
    return b"GGUF" + random.Random(seed).randbytes(size - 4)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB. Needs the right to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("no right to mount a small file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


async def test_refused_before_the_start(hub: FakeHub, small_disk: Path) -> None:
    hub.add(REPO, {MODEL: content(9_000_000)})
    desk = Desk(small_disk / "hub")
    planned = await desk.planned(REPO)
    assert not planned.space.fits
    assert planned.space.missing == 9_000_000
    assert planned.space.free <= 8 << 20
    failed = await desk.end(await desk.start(REPO))
    assert isinstance(failed, DownloadFailed)
    assert failed.error.kind is ErrorKind.NO_SPACE
    assert "9.0 MB needed" in failed.error.message
    assert not hub.gets()
    await desk.close()


async def test_what_waits_in_the_queue_is_reserved(hub: FakeHub, small_disk: Path) -> None:
    hub.add("a/one", {MODEL: content(4_000_000)})
    hub.add("b/two", {MODEL: content(5_000_000, 2)})
    desk = Desk(small_disk / "hub", parallel=1)
    hub.arm(Fault.SLOW, 500_000)
    await desk.start("a/one")
    failed = await desk.end(await desk.start("b/two"))
    assert isinstance(failed, DownloadFailed)
    assert failed.error.kind is ErrorKind.NO_SPACE
    assert "for the downloads before it" in failed.error.message
    await desk.close()


async def test_failed_half_way_and_well_after_space_was_freed(hub: FakeHub, small_disk: Path) -> None:
    body = content(5_000_000)
    hub.add(REPO, {MODEL: body})
    desk = Desk(small_disk / "hub")
    hub.arm(Fault.SLOW, 4_000_000)
    job = await desk.start(REPO)
    await desk.until_bytes(job, 1_000_000)
    hog = small_disk / "hog"
    hog.write_bytes(bytes(5_000_000))
    failed = await desk.end(job)
    assert isinstance(failed, DownloadFailed)
    assert failed.error.kind is ErrorKind.NO_SPACE
    assert failed.retryable
    assert not list(desk.cache.glob(".locks/**/*.lock"))
    assert not list(desk.cache.rglob("*.gguf"))
    hog.unlink()
    done = await desk.pull(REPO)
    assert Path(done.path).read_bytes() == body
    assert sum(hub.served.values()) <= len(body) + 1_048_576
    await desk.close()

"""Cancelling at any moment leaves nothing that runs, holds or lies about."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from protocol.download import DownloadCancelled, DownloadChoice, DownloadDone, PlanDownload, StartDownload
from tests.downloader.desk import Desk
from tests.eventually import eventually_async
from tests.fakes.hub import FakeHub, Fault

REPO = "someone/tiny-GGUF"
MODEL = "tiny-Q4_K_M.gguf"
SIZE = 6_000_000


def content(size: int, seed: int = 1) -> bytes:
    return b"GGUF" + random.Random(seed).randbytes(size - 4)


def children() -> set[int]:
    """The child processes of this process, whatever thread they belong to."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        found.update(int(pid) for pid in (task / "children").read_text().split())
    return found


def open_files(folder: Path) -> list[str]:
    """Files under a folder that this process has open."""
    targets = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            targets.append(os.readlink(descriptor))
        except FileNotFoundError:
            continue
    return [target for target in targets if target.startswith(str(folder))]


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 50))])
async def test_at_a_random_moment(hub: FakeHub, desk: Desk, seed: int) -> None:
    body = content(SIZE)
    hub.add(REPO, {MODEL: body})
    hub.rate = 20_000_000
    before = children()
    plan = desk.store_plan(hub, REPO, MODEL)
    job = desk.number()
    desk.downloader.handle(StartDownload(job, DownloadChoice(REPO), plan))
    # Starting a process, importing the library, asking, fetching, verifying, publishing: all within 0.9 s.
    moment = time.monotonic() + random.Random(seed).uniform(0, 0.9)
    await eventually_async(lambda: time.monotonic() > moment, 2, "the moment has come")
    ended = desk.ended(job)
    if ended is None:
        asked = time.monotonic()
        ended = await desk.cancel(job)
        assert time.monotonic() - asked < 1.0
    assert isinstance(ended, DownloadCancelled | DownloadDone)
    assert children() == before
    assert not list(desk.cache.glob(".locks/**/*.lock"))
    assert not open_files(desk.cache)
    listed = list(desk.cache.rglob("snapshots/**/*.gguf"))
    assert all(path.read_bytes() == body for path in listed)


async def test_a_cancelled_download_starts_again_where_it_was(hub: FakeHub, desk: Desk) -> None:
    body = content(3_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.SLOW, 2_000_000)
    job = await desk.start(REPO)
    await desk.until_bytes(job, 1_000_000)
    kept = (await desk.cancel(job)).kept
    assert kept >= 1_000_000
    assert [(each.path, each.size, each.total) for each in desk.store.partials()] == [(MODEL, kept, len(body))]
    done = await desk.pull(REPO)
    assert Path(done.path).read_bytes() == body
    assert sum(hub.served.values()) <= len(body) + 1_048_576


async def test_a_purge_leaves_nothing(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {MODEL: content(3_000_000), "mmproj-F16.gguf": content(1000, 2)})
    hub.arm(Fault.SLOW, 1_000_000)
    job = await desk.start(REPO)
    await desk.until_bytes(job, 200_000)
    cancelled = await desk.cancel(job, purge=True)
    assert cancelled.freed >= 200_000
    assert cancelled.kept == 0
    assert not list(desk.cache.glob("models--*"))


async def test_while_it_is_planned(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {MODEL: content(1000)})
    job = desk.number()
    desk.downloader.handle(PlanDownload(job, DownloadChoice(REPO)))
    await desk.cancel(job)
    assert not desk.cache.exists()


async def test_one_of_three_goes_and_the_others_do_not_stop(hub: FakeHub, desk: Desk) -> None:
    desk.configure(parallel=3)
    bodies = {f"someone/m{index}-GGUF": content(2_000_000, index) for index in range(3)}
    for repo, body in bodies.items():
        hub.add(repo, {MODEL: body})
    hub.arm(Fault.SLOW, 600_000, times=3)
    jobs = [await desk.start(repo) for repo in bodies]
    for job in jobs:
        await desk.until_bytes(job, 300_000)
    assert len(desk.processes()) == 3
    processes = set(desk.processes())
    await desk.cancel(jobs[1])
    assert len(processes & set(desk.processes())) == 2
    for job, body in ((jobs[0], bodies["someone/m0-GGUF"]), (jobs[2], bodies["someone/m2-GGUF"])):
        done = await desk.end(job)
        assert isinstance(done, DownloadDone)
        assert Path(done.path).read_bytes() == body
        assert max(level.attempt for level in desk.levels(job)) == 1

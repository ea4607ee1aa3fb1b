"""Real job processes, the real hub library, a fake hub."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download, scan_cache_dir

from downloader.runner import NICENESS
from protocol.download import DownloadDone, DownloadFailed, JobState
from protocol.errors import ErrorKind
from tests.downloader.desk import Desk
from tests.eventually import eventually_async
from tests.fakes.hub import FakeFile, FakeHub, Fault

REPO = "someone/tiny-GGUF"
MODEL = "tiny-Q4_K_M.gguf"


def content(size: int, seed: int = 1) -> bytes:
    return b"GGUF" + random.Random(seed).randbytes(size - 4)


async def test_a_file_arrives_and_other_tools_find_it(hub: FakeHub, desk: Desk) -> None:
    body = content(3_000_000)
    commit = hub.add(REPO, {MODEL: body, "README.md": b"hello"})
    done = await desk.pull(REPO)
    assert Path(done.path).read_bytes() == body
    assert done.path == hf_hub_download(REPO, MODEL, cache_dir=desk.cache, local_files_only=True)
    found = scan_cache_dir(desk.cache)
    assert not found.warnings
    assert [(repo.repo_id, repo.size_on_disk) for repo in found.repos] == [(REPO, len(body))]
    assert [(each.commit_hash, set(each.refs)) for repo in found.repos for each in repo.revisions] == [
        (commit, {"main"})
    ]
    assert desk.store.partials() == []


async def test_a_cut_is_resumed_where_it_was(hub: FakeHub, desk: Desk) -> None:
    body = content(4_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.CUT, 1_200_000)
    done = await desk.pull(REPO)
    assert Path(done.path).read_bytes() == body
    first, second = hub.gets()
    assert first.range == ""
    assert second.range.startswith("bytes=")
    assert second.if_range.startswith('"cdn-')
    assert sum(hub.served.values()) <= len(body) + 65536


async def test_a_killed_job_is_resumed_where_it_was(hub: FakeHub, desk: Desk) -> None:
    body = content(4_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.SLOW, 2_000_000)
    job = await desk.start(REPO)
    await desk.until_bytes(job, 1_000_000)
    (pid,) = desk.processes()
    os.kill(pid, 9)
    done = await desk.end(job)
    assert isinstance(done, DownloadDone)
    assert Path(done.path).read_bytes() == body
    assert sum(hub.served.values()) <= len(body) + 1_048_576
    assert "signal 9" in next(level.reason for level in desk.levels(job) if level.reason)


async def test_a_stall_is_found_and_resumed(hub: FakeHub, desk: Desk) -> None:
    desk.configure(stall_timeout=1.0)
    body = content(3_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.STALL, 1_000_000)
    done = await desk.pull(REPO)
    assert Path(done.path).read_bytes() == body
    assert sum(hub.served.values()) <= len(body) + 65536


@pytest.mark.slow
async def test_wrong_bytes_are_fetched_once_more(hub: FakeHub, desk: Desk) -> None:
    body = content(1_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.WRONG_BYTES)
    done = await desk.pull(REPO)
    assert Path(done.path).read_bytes() == body


async def test_wrong_bytes_are_never_listed(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {MODEL: content(1_000_000)})
    hub.arm(Fault.WRONG_BYTES, times=-1)
    job = await desk.start(REPO)
    failed = await desk.end(job)
    assert isinstance(failed, DownloadFailed)
    assert "checksum" in failed.error.message
    assert len(hub.gets()) == 2
    assert not list(desk.cache.rglob("*.gguf"))
    assert desk.store.partials() == []


@pytest.mark.slow
async def test_another_etag_of_the_cdn_starts_the_file_anew(hub: FakeHub, desk: Desk) -> None:
    body = content(2_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.CUT, 1_000_000)
    hub.arm(Fault.CDN_ETAG, times=-1)
    job = await desk.start(REPO)
    done = await desk.end(job)
    assert isinstance(done, DownloadDone)
    assert Path(done.path).read_bytes() == body
    shown = [level.done for level in desk.levels(job)]
    assert shown == sorted(shown)


async def test_a_file_that_changed_on_the_hub_is_planned_again(hub: FakeHub, desk: Desk) -> None:
    body = content(1_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.CHANGED_ETAG)
    done = await desk.pull(REPO)
    assert Path(done.path).read_bytes() == body


@pytest.mark.slow
async def test_a_busy_hub_is_given_time(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {MODEL: content(500_000)})
    hub.arm(Fault.RATE_LIMIT, 1)
    hub.arm(Fault.STATUS, 503)
    job = await desk.start(REPO)
    assert isinstance(await desk.end(job), DownloadDone)
    reasons = {level.reason for level in desk.levels(job) if level.state is JobState.WAITING}
    assert any("429" in reason for reason in reasons)
    assert any("503" in reason for reason in reasons)


@pytest.mark.slow
async def test_a_hub_that_stays_down_ends_the_job(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {MODEL: content(500_000)})
    hub.arm(Fault.STATUS, 500, times=-1)
    failed = await desk.end(await desk.start(REPO))
    assert isinstance(failed, DownloadFailed)
    assert failed.retryable
    assert "500" in failed.error.message


@pytest.mark.slow
async def test_a_hub_without_ranges_is_read_from_the_start(hub: FakeHub, desk: Desk) -> None:
    body = content(2_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.CUT, 1_000_000)
    hub.arm(Fault.NO_RANGES, times=-1)
    done = await desk.pull(REPO)
    assert Path(done.path).read_bytes() == body


async def test_a_file_in_git_is_checked_by_its_object_id(hub: FakeHub, desk: Desk) -> None:
    body = content(10_000)
    hub.add(REPO, {MODEL: FakeFile(body, large=False)})
    done = await desk.pull(REPO)
    assert Path(done.path).read_bytes() == body


async def test_the_token_goes_to_the_hub_and_nowhere_else(hub: FakeHub, cache: Path) -> None:
    body = content(500_000)
    hub.add(REPO, {MODEL: body}, token="hf_secret")
    desk = Desk(cache, token="hf_secret")
    try:
        hub.arm(Fault.SLOW, 400_000)
        job = await desk.start(REPO)
        await desk.until_bytes(job, 65536)
        (pid,) = desk.processes()
        assert b"hf_secret" not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert b"hf_secret" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert isinstance(await desk.end(job), DownloadDone)
    finally:
        await desk.close()
    assert {seen.authorization for seen in hub.seen if seen.path.startswith("/cdn/")} == {""}
    assert {seen.authorization for seen in hub.seen if not seen.path.startswith("/cdn/")} == {"Bearer hf_secret"}


@pytest.mark.slow
async def test_a_private_repository_without_a_token_is_not_found(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {MODEL: content(1000)}, token="hf_secret")
    failed = await desk.refused(REPO)
    assert failed.error.kind is ErrorKind.NOT_FOUND
    assert "HF_TOKEN" in failed.error.message


async def test_a_gated_repository_says_so(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {MODEL: content(1000)})
    hub.arm(Fault.GATED, times=-1)
    failed = await desk.refused(REPO)
    assert failed.error.kind is ErrorKind.FORBIDDEN
    assert "gated" in failed.error.message


async def test_shards_and_projector_arrive_together(hub: FakeHub, desk: Desk) -> None:
    shards = {f"big-Q8_0-{index:05d}-of-00003.gguf": content(200_000, index) for index in (1, 2, 3)}
    hub.add(REPO, {**shards, "mmproj-F16.gguf": content(50_000, 9), MODEL: content(1000)})
    job = await desk.start(f"{REPO}:Q8_0")
    done = await desk.end(job)
    assert isinstance(done, DownloadDone)
    assert done.path.endswith("big-Q8_0-00001-of-00003.gguf")
    assert {path.name for path in Path(done.path).parent.iterdir()} == {*shards, "mmproj-F16.gguf"}
    assert desk.levels(job)[-1].total == 650_000


async def test_one_rate_limit_for_all(hub: FakeHub, desk: Desk) -> None:
    desk.configure(parallel=2, rate_limit=1_000_000)
    hub.add("a/one", {MODEL: content(1_000_000, 1)})
    hub.add("b/two", {MODEL: content(1_000_000, 2)})
    jobs = [await desk.start("a/one"), await desk.start("b/two")]
    began = time.monotonic()
    for job in jobs:
        assert isinstance(await desk.end(job), DownloadDone)
    # Two million bytes at a million per second, less what passes before the first pause.
    assert time.monotonic() - began > 1.5


@pytest.mark.slow
async def test_a_limit_can_be_lifted_while_it_holds(hub: FakeHub, desk: Desk) -> None:
    desk.configure(rate_limit=50_000)
    hub.add(REPO, {MODEL: content(5_000_000)})
    job = await desk.start(REPO)
    await desk.until_bytes(job, 65_536)
    desk.configure(rate_limit=0)
    assert isinstance(await desk.end(job, timeout=10), DownloadDone)


async def test_a_job_gives_way_to_those_who_compute(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {MODEL: content(2_000_000)})
    hub.arm(Fault.SLOW, 1_000_000)
    job = await desk.start(REPO)
    await desk.until_bytes(job, 65_536)
    (pid,) = desk.processes()
    assert os.getpriority(os.PRIO_PROCESS, pid) == NICENESS
    assert os.sched_getscheduler(pid) == os.SCHED_IDLE


async def test_what_a_killed_job_left_is_checked_too(hub: FakeHub, desk: Desk) -> None:
    body = content(2_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.CUT, 1_000_000)
    hub.arm(Fault.SLOW, 500_000)
    job = await desk.start(REPO)
    await eventually_async(lambda: len(hub.gets()) == 2, 20, "the job goes on after the cut")
    (partial,) = desk.cache.rglob("*.llamaherd.incomplete")
    (pid,) = desk.processes()
    with partial.open("r+b") as file:
        file.write(b"FUGG")
    os.kill(pid, 9)
    done = await desk.end(job)
    assert isinstance(done, DownloadDone)
    assert Path(done.path).read_bytes() == body

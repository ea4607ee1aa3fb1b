"""The queue with a real downloader process, a real nursery and a fake hub."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path

import pytest

from protocol.download import DownloadChoice, JobState, RemoveModel
from protocol.errors import ErrorKind
from router.downloads.job import DownloadError
from tests.eventually import eventually_async
from tests.fakes.hub import FakeHub, Fault
from tests.router.downloads.office import Office

REPO = "someone/tiny-GGUF"
MODEL = "tiny-Q4_K_M.gguf"


def content(size: int, seed: int = 1) -> bytes:
    return b"GGUF" + random.Random(seed).randbytes(size - 4)


async def test_a_model_is_pulled_and_announced(hub: FakeHub, office: Office) -> None:
    body = content(2_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.SLOW, 4_000_000)
    job = await office.pull(REPO)
    assert job.model == f"{REPO}:Q4_K_M"
    await office.done(job)
    assert job.state is JobState.DONE
    assert Path(job.path).read_bytes() == body
    assert office.changes == 1
    assert office.told[0] == (job.model, "model_status", {"status": "downloading"})
    assert office.told[-1] == (job.model, "download_finished", None)
    ((address, numbers),) = office.told[-2][2]["progress"].items()
    assert address.endswith(f"/{REPO}/resolve/main/{MODEL}")
    assert numbers["total"] == len(body)


async def test_two_callers_share_one_transfer(hub: FakeHub, office: Office) -> None:
    body = content(2_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.SLOW, 2_000_000)
    # In different words: only the plans show that they want the same.
    one, other = await asyncio.gather(office.pull(REPO), office.pull(f"{REPO}:q4_k_m"))
    assert one is other
    again = await office.pull(REPO)
    assert again is one
    assert one.callers == 3
    await office.done(one)
    assert sum(hub.served.values()) == len(body)


async def test_a_waiting_caller_is_told_of_progress_and_of_the_end(hub: FakeHub, office: Office) -> None:
    hub.add(REPO, {MODEL: content(2_000_000)})
    hub.arm(Fault.SLOW, 2_000_000)
    shares: list[float] = []
    path = await office.downloads.fetch(DownloadChoice(REPO), shares.append)
    assert Path(path).is_file()
    assert shares == sorted(shares)
    assert any(0 < share < 1 for share in shares)


async def test_a_plan_alone_fetches_nothing(hub: FakeHub, office: Office) -> None:
    hub.add(REPO, {MODEL: content(5000), "mmproj-F16.gguf": content(300)})
    job = await office.downloads.plan(DownloadChoice(REPO, projector="none"))
    assert job.plan is not None
    assert job.space is not None
    assert [file.path for file in job.plan.files] == [MODEL]
    assert [file.path for file in job.plan.optional] == ["mmproj-F16.gguf"]
    assert job.space.missing == 5000
    assert office.downloads.jobs() == []
    assert not office.cache.exists()


async def test_a_bad_reference_is_refused_at_once(office: Office) -> None:
    with pytest.raises(DownloadError) as refused:
        await office.pull("../../etc/passwd")
    assert refused.value.error.kind is ErrorKind.INVALID_REQUEST
    assert office.downloads.jobs() == []


async def test_what_does_not_fit_is_refused_with_numbers(hub: FakeHub, office: Office) -> None:
    hub.add(REPO, {MODEL: content(5000)})
    office.settings = type(office.settings)(cache_dir=str(office.cache), space_margin=1 << 60)
    office.downloads.configure(office.settings)
    with pytest.raises(DownloadError) as refused:
        await office.pull(REPO)
    assert refused.value.error.kind is ErrorKind.NO_SPACE
    assert "5.0 kB needed" in refused.value.error.message


async def test_a_killed_downloader_is_replaced_and_goes_on(hub: FakeHub, office: Office) -> None:
    body = content(4_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.SLOW, 2_000_000)
    job = await office.pull(REPO)
    await office.shows(job, 1_200_000)
    first = office.downloads.pid
    os.kill(first, signal.SIGKILL)
    await office.done(job)
    assert job.state is JobState.DONE
    assert office.downloads.pid != first
    assert Path(job.path).read_bytes() == body
    assert sum(hub.served.values()) <= len(body) + 1_048_576


async def test_the_queue_survives_the_gateway(hub: FakeHub, office: Office) -> None:
    body = content(4_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.SLOW, 2_000_000)
    job = await office.pull(REPO)
    await office.shows(job, 1_200_000)
    await office.close()
    await eventually_async(lambda: hub.open_answers == 0, 5, "the transfer has ended with its gateway")
    await office.open()
    (again,) = office.downloads.jobs()
    assert (again.number, again.choice) == (job.number, job.choice)
    await office.done(again)
    assert again.state is JobState.DONE
    assert sum(hub.served.values()) <= len(body) + 1_048_576


@pytest.mark.slow
async def test_a_paused_job_rests_until_it_is_resumed(hub: FakeHub, office: Office) -> None:
    body = content(3_000_000)
    hub.add(REPO, {MODEL: body})
    hub.arm(Fault.SLOW, 2_000_000)
    job = await office.pull(REPO)
    await office.shows(job, 500_000)
    office.downloads.pause(job)
    await eventually_async(lambda: job.state is JobState.PAUSED, 5, "the job is paused")
    await office.close()
    await office.open()
    (again,) = office.downloads.jobs()
    assert again.state is JobState.PAUSED
    office.downloads.resume(again)
    await office.done(again)
    assert again.state is JobState.DONE
    assert sum(hub.served.values()) <= len(body) + 1_048_576


async def test_a_cancelled_job_keeps_its_part_and_a_purge_drops_it(hub: FakeHub, office: Office) -> None:
    hub.add(REPO, {MODEL: content(3_000_000)})
    hub.arm(Fault.SLOW, 1_500_000, times=2)
    job = await office.pull(REPO)
    await office.shows(job, 500_000)
    await office.downloads.cancel(job)
    assert job.state is JobState.CANCELLED
    assert job.kept >= 500_000
    await eventually_async(lambda: office.downloads.partials(), 5, "the partial is listed")
    (partial,) = office.downloads.partials()
    assert (partial.repo, partial.path, partial.size) == (REPO, MODEL, job.kept)
    assert office.events("download_finished", "download_cancelled") == ["download_cancelled"]
    again = await office.pull(REPO)
    await office.downloads.cancel(again, purge=True)
    assert again.freed >= job.kept
    assert not list(office.cache.rglob("*.incomplete"))
    await eventually_async(lambda: not office.downloads.partials(), 5, "no partial is listed any more")


async def test_deleting_says_what_was_freed(hub: FakeHub, office: Office) -> None:
    hub.add(REPO, {MODEL: content(1000), "tiny-Q8_0.gguf": content(2000, 2)})
    await office.done(await office.pull(f"{REPO}:Q4_K_M"))
    await office.done(await office.pull(f"{REPO}:Q8_0"))
    assert await office.downloads.remove(RemoveModel(0, REPO, paths=(MODEL,))) == 1000
    assert [path.name for path in office.cache.rglob("*.gguf")] == ["tiny-Q8_0.gguf"]
    assert office.changes == 3
    with pytest.raises(DownloadError):
        await office.downloads.remove(RemoveModel(0, "no/where", paths=("x.gguf",)))


@pytest.mark.slow
async def test_an_ended_job_is_discarded_with_what_it_left(hub: FakeHub, office: Office) -> None:
    hub.add(REPO, {MODEL: content(3_000_000)})
    hub.arm(Fault.SLOW, 1_500_000)
    job = await office.pull(REPO)
    await office.shows(job, 500_000)
    await office.downloads.cancel(job)
    kept = job.kept
    await office.downloads.discard(job, purge=True)
    assert job.freed == kept
    assert office.downloads.jobs() == []
    assert not list(office.cache.glob("models--*"))


@pytest.mark.slow
async def test_different_plans_of_one_repository_are_two_jobs(hub: FakeHub, office: Office) -> None:
    projector = content(50_000, 3)
    hub.add(REPO, {MODEL: content(100_000), "tiny-Q8_0.gguf": content(200_000, 2), "mmproj-F16.gguf": projector})
    one = await office.pull(f"{REPO}:Q4_K_M")
    other = await office.pull(f"{REPO}:Q8_0")
    assert one is not other
    await office.done(one)
    await office.done(other)
    assert sum(hub.served.values()) == 350_000
    assert len(list(office.cache.rglob("*.gguf"))) == 3

"""What other tools share: layout, revisions, deletion, locks, and life without a network."""

from __future__ import annotations

import fcntl
import os
import random
import shutil
from pathlib import Path

import pytest
from huggingface_hub import scan_cache_dir

from downloader import locks
from downloader.store import Note, Store, default_cache_dir
from protocol.download import Plan, PlanFile
from protocol.errors import ErrorKind
from tests.downloader.desk import Desk
from tests.eventually import eventually_async
from tests.fakes.hub import FakeHub, Fault

REPO = "someone/tiny-GGUF"
Q4 = "tiny-Q4_K_M.gguf"
Q8 = "tiny-Q8_0.gguf"


def content(size: int, seed: int = 1) -> bytes:
    return b"GGUF" + random.Random(seed).randbytes(size - 4)


def disk_use(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def assert_sound(cache: Path) -> None:
    """The hub's library finds nothing wrong with the cache."""
    assert not scan_cache_dir(cache).warnings


def test_the_cache_is_where_the_library_has_it() -> None:
    assert default_cache_dir({"HF_HUB_CACHE": "/a"}) == Path("/a")
    assert default_cache_dir({"HF_HOME": "/b"}) == Path("/b/hub")
    assert default_cache_dir({"XDG_CACHE_HOME": "/c"}) == Path("/c/huggingface/hub")
    assert default_cache_dir({}) == Path("~/.cache/huggingface/hub").expanduser()


async def test_a_second_pull_takes_the_newer_revision_and_only_what_changed(hub: FakeHub, desk: Desk) -> None:
    projector = content(3000, 5)
    first = hub.add(REPO, {Q4: content(1000), "mmproj-F16.gguf": projector})
    await desk.pull(REPO)
    second = hub.add(REPO, {Q4: content(1000, 2), "mmproj-F16.gguf": projector})
    served = sum(hub.served.values())
    done = await desk.pull(REPO)
    assert f"/snapshots/{second}/" in done.path
    assert Path(done.path).read_bytes() == content(1000, 2)
    assert sum(hub.served.values()) - served == 1000
    assert_sound(desk.cache)
    before = disk_use(desk.cache)
    assert await desk.remove(REPO, superseded=True) == 1000
    assert before - disk_use(desk.cache) >= 1000
    assert [path.name for path in (desk.cache / "models--someone--tiny-GGUF" / "snapshots").iterdir()] == [second]
    assert first != second
    assert_sound(desk.cache)


@pytest.mark.slow
async def test_an_older_revision_by_name(hub: FakeHub, desk: Desk) -> None:
    first = hub.add(REPO, {Q4: content(1000)})
    hub.add(REPO, {Q4: content(1000, 2)})
    done = await desk.pull(f"{REPO}@{first}")
    assert Path(done.path).read_bytes() == content(1000)
    failed = await desk.refused(f"{REPO}@nosuch")
    assert failed.error.kind is ErrorKind.NOT_FOUND
    assert "nosuch" in failed.error.message


async def test_names_that_differ_in_case_are_one_repository(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {Q4: content(1000)})
    done = await desk.pull(REPO.upper())
    assert "models--someone--tiny-GGUF" in done.path
    await desk.pull(REPO)
    assert sum(hub.served.values()) == 1000
    assert len(list(desk.cache.glob("models--*"))) == 1


async def test_offline_the_cache_answers(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {Q4: content(1000), Q8: content(2000)})
    first = await desk.pull(REPO)
    seen = len(hub.seen)
    desk.configure(offline=True)
    assert (await desk.pull(f"{REPO.upper()}:q4_k_m")).path == first.path
    failed = await desk.refused(f"{REPO}:Q8_0")
    assert failed.error.kind is ErrorKind.UNAVAILABLE
    assert "offline" in failed.error.message
    assert (await desk.refused("other/repo")).error.kind is ErrorKind.UNAVAILABLE
    assert len(hub.seen) == seen


@pytest.mark.slow
async def test_a_hub_that_does_not_answer_is_done_without(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {Q4: content(1000)})
    first = await desk.pull(REPO)
    hub.arm(Fault.API_STATUS, 503, times=-1)
    planned = await desk.planned(REPO)
    assert planned.plan.cached
    assert (await desk.pull(REPO)).path == first.path
    assert "503" in (await desk.refused(f"{REPO}:Q8_0")).error.message


async def test_unknown_repositories_and_repositories_without_models(hub: FakeHub, desk: Desk) -> None:
    hub.add("a/text", {"README.md": b"hello"})
    assert (await desk.refused("no/such")).error.kind is ErrorKind.NOT_FOUND
    assert "no GGUF" in (await desk.refused("a/text")).error.message
    assert not desk.cache.exists()


async def test_deleting_a_model_leaves_what_others_use(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {Q4: content(1000), Q8: content(2000, 2), "mmproj-F16.gguf": content(500, 3)})
    await desk.pull(f"{REPO}:Q4_K_M")
    await desk.pull(f"{REPO}:Q8_0")
    assert await desk.remove(REPO, Q4) == 1000
    assert {path.name for path in desk.cache.rglob("*.gguf")} == {Q8, "mmproj-F16.gguf"}
    assert_sound(desk.cache)
    assert await desk.remove(REPO, Q8) == 2500
    assert not list(desk.cache.glob("models--*"))


@pytest.mark.slow
async def test_content_that_two_names_share_is_kept_until_the_last(hub: FakeHub, desk: Desk) -> None:
    body = content(1000)
    hub.add(REPO, {Q4: body, Q8: body})
    await desk.pull(f"{REPO}:Q4_K_M")
    await desk.pull(f"{REPO}:Q8_0")
    assert sum(hub.served.values()) == 1000
    assert await desk.remove(REPO, Q4) == 0
    assert next(desk.cache.rglob("*.gguf")).read_bytes() == body
    assert await desk.remove(REPO, Q8) == 1000


async def test_content_in_the_store_that_repositories_share(hub: FakeHub, desk: Desk) -> None:
    """As the hub's library lays it out when it fetches with Xet: a blob is a link, and a manifest counts the links."""
    body = content(1000)
    hub.add("a/one", {Q4: body})
    hub.add("b/two", {Q4: body})
    await desk.pull("a/one")
    await desk.pull("b/two")
    name = "ab" + "c" * 62
    shared = desk.cache / "blobs" / "ab" / name
    shared.parent.mkdir(parents=True)
    (desk.cache / "blobs" / ".huggingface-shared-blobs").write_text("1\n")
    references = []
    for repo in ("models--a--one", "models--b--two"):
        (blob,) = (desk.cache / repo / "blobs").iterdir()
        shutil.copy(blob, shared)
        blob.unlink()
        blob.symlink_to(os.path.relpath(shared, blob.parent))
        references.append(f"{repo}/blobs/{blob.name}\n")
    shared.with_name(f"{name}.refs").write_text("".join(references))
    assert await desk.remove("a/one", Q4) == 0
    assert shared.read_bytes() == body
    assert await desk.remove("b/two", Q4) == 1000
    assert not shared.exists()


async def test_another_tool_that_fetches_the_same_is_waited_for(hub: FakeHub, desk: Desk) -> None:
    body = content(1000)
    hub.add(REPO, {Q4: body})
    planned = await desk.planned(REPO)
    (file,) = planned.plan.files
    desk.store.prepare(REPO)
    path = desk.store.lock(REPO, file.blob)
    path.parent.mkdir(parents=True)
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        job = await desk.start(REPO)
        await eventually_async(lambda: any(level.reason for level in desk.levels(job)), 10, "the job says why it waits")
        desk.store.blob(REPO, file.blob).write_bytes(body)
    await desk.end(job)
    assert sum(hub.served.values()) == 0
    assert next(desk.cache.rglob("*.gguf")).read_bytes() == body


async def test_partials_of_any_tool_are_listed_and_deleted(hub: FakeHub, desk: Desk) -> None:
    hub.add(REPO, {Q4: content(1000)})
    await desk.pull(REPO)
    blobs = desk.store.folder(REPO) / "blobs"
    (blobs / ("d" * 64 + ".12345678.incomplete")).write_bytes(bytes(77))
    desk.store.partial(REPO, "e" * 64).write_bytes(bytes(33))
    desk.store.write_note(REPO, "e" * 64, Note("other.gguf", 99))
    (blobs / ("f" * 64)).write_bytes(bytes(11))
    found = {(each.blob[0], each.size, each.path, each.total) for each in desk.store.partials()}
    assert found == {("d", 77, "", 0), ("e", 33, "other.gguf", 99), ("f", 11, "", 11)}
    assert await desk.remove(REPO, partials=("e" * 64,)) == 33
    assert await desk.remove(REPO, partials=("*",)) == 88
    assert desk.store.partials() == []
    assert next(desk.cache.rglob("*.gguf")).read_bytes() == content(1000)
    assert_sound(desk.cache)


def test_stale_locks_go_and_held_ones_stay(tmp_path: Path) -> None:
    folder = tmp_path / ".locks" / "models--a--b"
    folder.mkdir(parents=True)
    for name in ("stale", "held", "young"):
        (folder / f"{name}.lock").touch()
    for name in ("stale", "held"):
        os.utime(folder / f"{name}.lock", (1, 1))
    with (folder / "held.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        os.utime(folder / "held.lock", (1, 1))
        assert locks.sweep_stale(tmp_path) == 1
    assert {path.name for path in folder.iterdir()} == {"held.lock", "young.lock"}


def test_the_first_file_of_a_plan_is_published_last(tmp_path: Path) -> None:
    store = Store(tmp_path)
    files = tuple(PlanFile(f"m-{index:05d}-of-00003.gguf", 4, f"{index}" * 64) for index in (1, 2, 3))
    plan = Plan("a/b:Q8_0", "a/b", "main", "c" * 40, files)
    store.prepare("a/b")
    for file in files:
        store.blob("a/b", file.blob).write_bytes(b"GGUF")
    links: list[str] = []
    link = Path.symlink_to

    class Watching(type(tmp_path)):  # type: ignore[misc]
        def symlink_to(self, target: str, target_is_directory: bool = False) -> None:
            links.append(self.name)
            link(self, target)

    watched = Store(Watching(tmp_path))
    assert watched.publish(plan) == store.pointer("a/b", plan.commit, files[0].path)
    assert links == [file.path for file in reversed(files)]
    assert store.commit_of("a/b", "main") == plan.commit
    assert store.published(plan)

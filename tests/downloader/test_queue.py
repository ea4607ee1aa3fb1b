"""Order, parallelism, and what a new job has to leave free."""

from __future__ import annotations

from downloader.queue import DownloadQueue
from protocol.download import Plan, PlanFile


def plan(*blobs: str, repo: str = "user/repo") -> Plan:
    return Plan(repo, repo, "main", "c" * 40, tuple(PlanFile(f"{blob}.gguf", 10, blob) for blob in blobs))


def filled(*plans: Plan) -> DownloadQueue:
    queue = DownloadQueue()
    for number, each in enumerate(plans, 1):
        queue.add(number, each)
    return queue


def test_first_come_first_served_up_to_the_limit() -> None:
    queue = filled(plan("a"), plan("b"), plan("c"))
    assert queue.start(2) == [1, 2]
    assert queue.start(2) == []
    queue.remove(1)
    assert queue.start(2) == [3]


def test_the_same_content_is_never_written_twice_at_once() -> None:
    queue = filled(plan("a", "p"), plan("b", "p"), plan("c"))
    assert queue.start(3) == [1, 3]
    queue.remove(1)
    assert queue.start(3) == [2]


def test_the_same_content_in_two_repositories_is_two_files() -> None:
    queue = filled(plan("a"), plan("a", repo="other/repo"))
    assert queue.start(2) == [1, 2]


def test_a_job_that_waits_for_its_next_attempt_keeps_its_place() -> None:
    queue = filled(plan("a"), plan("b"), plan("c"))
    assert queue.start(1) == [1]
    queue.hold(1)
    assert queue.start(1) == [2]
    queue.release(1)
    assert queue.start(1) == []
    queue.remove(2)
    assert queue.start(1) == [1]


def test_a_lower_limit_stops_nobody_who_runs() -> None:
    queue = filled(plan("a"), plan("b"), plan("c"))
    assert queue.start(2) == [1, 2]
    assert queue.start(1) == []
    queue.remove(1)
    assert queue.start(1) == []
    queue.remove(2)
    assert queue.start(1) == [3]


def test_space_is_spoken_for_by_those_before_and_those_that_run() -> None:
    plans = [plan("a", "z"), plan("b", "z"), plan("c")]
    queue = filled(*plans)
    assert queue.start(2) == [1, 3]
    assert queue.claims(1) == [plans[2]]
    assert queue.claims(2) == [plans[0], plans[2]]
    assert queue.claims(3) == plans[:2]
    assert queue.claims(99) == plans

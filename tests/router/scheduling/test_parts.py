"""The pure parts by themselves: budget, backoff, governor, eviction, alarms, estimates."""

from __future__ import annotations

import random

import pytest

from router.scheduling import backoff, budget, eviction, queue
from router.scheduling.alarms import Alarms
from router.scheduling.effects import SendThreads
from router.scheduling.governor import Claim, shares
from router.scheduling.model import Need, Policy
from router.scheduling.records import Model
from tests.router.scheduling.rig import Rig, entry, host

A, B = ("a", 40), ("b", 7)


def test_shared_bytes_are_charged_once_per_device_and_file() -> None:
    assert budget.occupied([host(10, A), host(5, A, B)]) == {"host": 10 + 5 + 40 + 7}
    assert budget.occupied([(Need("gpu0", 3), *host(1, A)), host(2, A)]) == {"gpu0": 3, "host": 43}
    assert budget.occupied([(Need("host", 0, (A,)),), (Need("gpu0", 0, (A,)),)]) == {"host": 40, "gpu0": 40}


def test_the_overdraft_names_the_devices_that_are_too_small() -> None:
    limits = (("host", 50), ("gpu0", 4))
    assert budget.overdraft(limits, [host(10, A)]) == {}
    assert budget.overdraft(limits, [host(10, A), host(3), (Need("gpu0", 9),)]) == {"host": 3, "gpu0": 5}
    assert budget.overdraft((), [host(1 << 60)]) == {}
    assert budget.overdraft(limits, [(Need("gpu1", 1 << 60),)]) == {}, "a device that is absent is not limited"


def test_what_a_reading_lacks_leaves_out_files_that_are_mapped_already() -> None:
    assert budget.lacking([("host", 30)], host(10, A), []) == {"host": 20}
    assert budget.lacking([("host", 30)], host(10, A), [host(1, A)]) == {}
    assert budget.lacking([], host(10, A), []) == {}


@pytest.mark.parametrize(
    ("claims", "cores", "expected"),
    [
        ([Claim("a")], 8, {"a": 8}),
        ([Claim("a"), Claim("b")], 8, {"a": 4, "b": 4}),
        ([Claim("a"), Claim("b"), Claim("c")], 8, {"a": 3, "b": 3, "c": 2}),
        ([Claim("a"), Claim("b"), Claim("c")], 2, {"a": 1, "b": 1, "c": 1}),
        ([Claim("a", reserved=3), Claim("b")], 8, {"a": 3, "b": 5}),
        ([Claim("a", on_gpu=True), Claim("b")], 8, {"a": 1, "b": 7}),
        ([Claim("a", on_gpu=True)], 8, {"a": 8}),
        ([Claim("a", reserved=9)], 8, {"a": 8}),
        ([], 8, {}),
    ],
)
def test_cores_are_shared_out(claims: list[Claim], cores: int, expected: dict[str, int]) -> None:
    assert shares(claims, cores) == expected


def test_workers_are_told_their_threads_when_the_busy_set_changes() -> None:
    rig = Rig(entry("a"), entry("b"), threads=4)
    first = rig.ask("a")
    a = rig.up("a")
    rig.none(SendThreads)
    second = rig.ask("b")
    b = rig.up("b")
    assert {(told.child, told.threads) for told in rig.seen(SendThreads)} == {(a, 2), (b, 2)}
    rig.end(second, b)
    assert [(told.child, told.threads) for told in rig.seen(SendThreads)] == [(a, 4)]
    rig.end(first, a)
    rig.none(SendThreads)


def test_pauses_double_from_the_second_failure_and_have_a_ceiling() -> None:
    policy = Policy(backoff_first=1.0, backoff_max=10.0)
    source = random.Random(5)
    pauses = [backoff.pause(count, policy, source) for count in range(1, 9)]
    assert pauses[0] == 0.0
    for measured, full in zip(pauses[1:], [1, 2, 4, 8, 10, 10, 10], strict=True):
        assert 0.75 * full <= measured <= full
    assert len({round(pause / 10, 9) for pause in pauses[-3:]}) == 3, "without jitter all would start together"
    assert backoff.pause(10_000, policy, source) <= 10.0


def model(key: str, priority: int = 0, last_used: float = 0.0) -> Model:
    return Model(entry(key, priority=priority), key, since=0.0, last_used=last_used)


def test_victims_come_in_the_order_of_their_worth_and_the_needless_ones_stay() -> None:
    small, large, dear = model("small", last_used=1.0), model("large", last_used=2.0), model("dear", priority=1)
    assert sorted([dear, large, small], key=eviction.by_worth) == [small, large, dear]
    sizes = {"small": 1, "large": 10, "dear": 10}

    def frees(count: int) -> object:
        return eviction.choose(
            [small, large, dear], lambda victims: sum(sizes[victim.key] for victim in victims) >= count
        )

    assert frees(0) == []
    assert frees(1) == [small]
    assert frees(10) == [large], "the small one would have been chosen first, in vain"
    assert frees(11) == [small, large]
    assert frees(20) == [large, dear]
    assert frees(22) is None


def test_an_alarm_is_set_once_and_only_when_it_is_earlier() -> None:
    alarms = Alarms()
    alarms.at(5.0)
    alarms.at(5.0)
    assert alarms.arm() == 5.0
    alarms.at(7.0)
    assert alarms.arm() is None
    alarms.at(3.0)
    assert alarms.arm() == 3.0
    assert not alarms.due(2.9)
    assert alarms.due(3.0)
    assert alarms.arm() == 5.0
    assert alarms.due(10.0)
    assert alarms.arm() is None
    assert not alarms.due(20.0)


def test_the_estimate_grows_with_the_line_and_stays_within_its_bounds() -> None:
    waited_for = model("a")
    waited_for.service_seconds = 8.0
    assert queue.estimate(waited_for, [], Policy()) == queue.ESTIMATE_FLOOR
    waited_for.waiting = [object()] * 10  # type: ignore[list-item]
    assert queue.estimate(waited_for, [], Policy()) == 8.0 * 10 / 4
    other = model("b")
    other.load_seconds, other.service_seconds = 4.0, 100.0
    assert queue.estimate(waited_for, [other], Policy(drain_timeout=30.0)) == 20.0 + 4.0 + 30.0
    waited_for.service_seconds = 1e9
    assert queue.estimate(waited_for, [], Policy()) == queue.ESTIMATE_CEILING

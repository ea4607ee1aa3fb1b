from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from router.supervision.news import WOKEN, NewsHub, NewsMissed


async def test_subscribers_get_each_event_once_in_order() -> None:
    hub = NewsHub()
    subscription = hub.subscribe()
    for number in range(3):
        hub.publish(str(number), "status_change")
    assert [(await subscription.next(1)).key for _ in range(3)] == ["0", "1", "2"]  # type: ignore[union-attr]
    assert await subscription.next(0) is None


async def test_a_waiting_subscriber_is_woken() -> None:
    hub = NewsHub()
    subscriptions = [hub.subscribe() for _ in range(200)]
    waiting = [asyncio.create_task(subscription.next()) for subscription in subscriptions]
    await asyncio.wait(waiting, timeout=0)
    hub.publish("a", "status_change")
    got = await asyncio.gather(*waiting)
    assert {news.id for news in got if news is not None} == {hub.last_id}


async def test_coming_back_with_an_id_replays_what_was_missed() -> None:
    hub = NewsHub()
    hub.publish("a", "x")
    last = hub.last_id
    hub.publish("b", "x")
    hub.publish("c", "x")
    subscription = hub.subscribe(last)
    first, second = await subscription.next(), await subscription.next()
    assert first is not None
    assert second is not None
    assert [first.key, second.key] == ["b", "c"]


@pytest.mark.parametrize("stale", [1, 10**18])
async def test_an_id_that_is_not_kept_means_begin_anew(stale: int) -> None:
    hub = NewsHub(kept=2)
    for number in range(5):
        hub.publish(str(number), "x")
    subscription = hub.subscribe(stale)
    with pytest.raises(NewsMissed):
        await subscription.next()
    hub.publish("next", "x")
    news = await subscription.next()
    assert news is not None
    assert news.key == "next"


async def test_a_slow_subscriber_holds_nothing_up_and_is_told_what_it_lost() -> None:
    hub = NewsHub(kept=10)
    slow = hub.subscribe()
    for number in range(100):
        hub.publish(str(number), "x")
    with pytest.raises(NewsMissed):
        await slow.next()
    assert await slow.next(0) is None


async def test_ids_of_an_earlier_router_are_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    older = NewsHub()
    for _ in range(100):
        older.publish("a", "x")
    later = time.time() + 1
    monkeypatch.setattr(time, "time", lambda: later)
    newer = NewsHub()
    assert newer.last_id > older.last_id
    with pytest.raises(NewsMissed):
        await newer.subscribe(older.last_id).next()


async def test_many_subscribers_are_woken_in_turns_of_the_loop() -> None:
    hub = NewsHub()
    woken: list[int] = []

    async def follow(number: int) -> None:
        assert await hub.subscribe().next() is not None
        woken.append(number)

    tasks = [asyncio.create_task(follow(number)) for number in range(3 * WOKEN)]
    await asyncio.wait(tasks, timeout=0)
    hub.publish("a", "status_change")
    turns = []
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)  # noqa: TID251  one turn of the loop
        turns.append(len(woken))
    assert woken == list(range(3 * WOKEN))
    assert max(after - before for before, after in itertools.pairwise([0, *turns])) <= WOKEN


async def test_nobody_sleeps_through_an_event_that_comes_while_others_are_woken() -> None:
    hub = NewsHub()
    seen: dict[int, list[int]] = {number: [] for number in range(2 * WOKEN)}

    async def follow(number: int) -> None:
        subscription = hub.subscribe()
        for _ in range(2):
            news = await subscription.next()
            assert news is not None
            seen[number].append(news.id)

    tasks = [asyncio.create_task(follow(number)) for number in seen]
    await asyncio.wait(tasks, timeout=0)
    hub.publish("a", "status_change")
    await asyncio.sleep(0)  # noqa: TID251  one turn of the loop
    hub.publish("a", "status_change")
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)
    assert all(ids == [hub.last_id - 1, hub.last_id] for ids in seen.values())

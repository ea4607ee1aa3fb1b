"""Streams that survive their connection."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx
import pytest

from protocol.errors import ErrorKind, WireError
from protocol.generate import Delta, Generate
from router.config.settings import Settings
from router.scheduling.effects import Phase
from router.security.keys import KeySpec
from tests.eventually import eventually_async
from tests.router.http.gateway import Running, completed, gateway, silence

BODY: dict[str, Any] = {"model": "smol", "messages": [{"role": "user", "content": "hi"}], "stream": True}
WORDS = [f"word {number} — é\n" for number in range(40)]


def http(running: Running) -> httpx.AsyncClient:
    return running.client()


async def begin(running: Running, client: httpx.AsyncClient, conversation: str) -> None:
    """Send a request and go away as soon as it has been taken."""
    before = len(running.owner.works)
    headers = {"X-Conversation-Id": conversation}
    asking = asyncio.create_task(client.post("/v1/chat/completions", json=BODY, headers=headers))
    await eventually_async(lambda: len(running.owner.works) > before, 5, "the request arrives")
    request = running.owner.works[-1].request
    await eventually_async(lambda: running.owner.streams[request].readers == 1, 5, "it is read")
    asking.cancel()
    await eventually_async(lambda: running.owner.streams[request].readers == 0, 5, "its reader has gone")


async def read_some(client: httpx.AsyncClient, conversation: str, offset: int, limit: int) -> bytes:
    """Read at most `limit` bytes from an offset, then cut the connection."""
    data = b""
    query = {"conv_id": conversation, "from": offset}
    async with client.stream("GET", "/v1/stream", params=query) as answer:
        assert answer.status_code == 200
        async for chunk in answer.aiter_raw():
            data += chunk
            if len(data) >= limit:
                break
    return data[:limit]


async def test_stream_cut_at_random_bytes_is_whole_in_the_end() -> None:
    source = random.Random(7)
    async with gateway(play=silence) as running, http(running) as client:
        await begin(running, client, "c1")
        stream, work = running.owner.streams[1], running.owner.works[0]
        assert isinstance(work, Generate)
        joined = b""
        for word in WORDS:
            stream.delta(Delta(1, word))
            joined += await read_some(client, "c1", len(joined), source.randint(1, 300))
        stream.answer(completed(work, len(WORDS)))
        while len(joined) < stream.end:
            joined += await read_some(client, "c1", len(joined), source.randint(1, 300))
        whole = (await client.get("/v1/stream", params={"conv_id": "c1"})).content
    assert joined == whole
    assert whole.endswith(b"data: [DONE]\n\n")
    assert running.owner.left == []


async def test_stream_can_be_awaited_before_its_first_token() -> None:
    async with gateway(settings=Settings(early_headers_ms=20), play=silence) as running, http(running) as client:
        await begin(running, client, "c1")
        stream, work = running.owner.streams[1], running.owner.works[0]
        assert isinstance(work, Generate)
        async with client.stream("GET", "/v1/stream", params={"conv_id": "c1"}) as answer:
            stream.notify(Phase.QUEUED, 3)
            stream.delta(Delta(1, "late"))
            stream.answer(completed(work, 1))
            text = (await answer.aread()).decode()
    assert ": queued 3" in text
    assert '"content":"late"' in text


async def test_crash_ends_a_kept_stream_with_its_error_event() -> None:
    async with gateway(play=silence) as running, http(running) as client:
        await begin(running, client, "c1")
        stream = running.owner.streams[1]
        stream.delta(Delta(1, "Hel"))
        seen = await read_some(client, "c1", 0, 10_000_000) if stream.ended else await read_some(client, "c1", 0, 5)
        stream.fail(WireError(ErrorKind.WORKER_DIED, "it died"))
        rest = await read_some(client, "c1", len(seen), 10_000_000)
    assert (seen + rest).endswith(b'data: {"error":{"code":503,"message":"it died","type":"worker_died_error"}}\n\n')


async def test_stopped_stream_is_gone_and_its_request_given_up() -> None:
    async with gateway(play=silence) as running, http(running) as client:
        await begin(running, client, "c1")
        for _ in range(2):
            assert (await client.delete("/v1/stream", params={"conv_id": "c1"})).status_code == 204
        assert (await client.get("/v1/stream", params={"conv_id": "c1"})).status_code == 404
        assert running.owner.left == [1]
        assert running.owner.streams[1].failure is not None


async def test_new_request_of_a_conversation_replaces_the_one_before() -> None:
    async with gateway(play=silence) as running, http(running) as client:
        await begin(running, client, "c1")
        await begin(running, client, "c1")
        assert running.owner.left == [1]
        assert len(running.services.conversations) == 1


async def test_lookup_knows_ids_and_their_branches() -> None:
    async with gateway(play=silence) as running, http(running) as client:
        await begin(running, client, "a")
        await begin(running, client, "a::2")
        await begin(running, client, "b")
        running.owner.streams[1].delta(Delta(1, "x"))
        answer = await client.post("/v1/streams/lookup", json={"conversation_ids": ["a", "nope"]})
    found = answer.json()
    assert [entry["conversation_id"] for entry in found] == ["a", "a::2"]
    assert found[0]["total_bytes"] > 0
    assert found[0]["is_done"] is False
    assert found[0]["completed_at"] == 0


async def test_stream_belongs_to_the_key_that_made_it() -> None:
    keys = [KeySpec("k-one", "one"), KeySpec("k-two", "two")]
    async with gateway(play=silence, keys=keys) as running, http(running) as client:
        client.headers["Authorization"] = "Bearer k-one"
        await begin(running, client, "c1")
        client.headers["Authorization"] = "Bearer k-two"
        assert (await client.get("/v1/stream", params={"conv_id": "c1"})).status_code == 404
        assert (await client.post("/v1/streams/lookup", json={"conversation_ids": ["c1"]})).json() == []
        request = next(iter(running.services.inference.tickets())).id
        assert (await client.delete(f"/requests/{request}")).status_code == 404
        await client.delete("/v1/stream", params={"conv_id": "c1"})
        assert running.owner.left == []


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({}, 400, "Missing conversation id"),
        ({"conv_id": "c1", "from": "x"}, 400, "Invalid 'from' offset"),
        ({"conv_id": "c1", "from": "-1"}, 400, "Invalid 'from' offset"),
        ({"conv_id": "c1", "from": "999"}, 400, "Invalid 'from' offset"),
        ({"conv_id": "nope"}, 404, "Stream not found or expired"),
    ],
)
async def test_bad_reads(query: dict[str, str], status: int, words: str) -> None:
    async with gateway(play=silence) as running, http(running) as client:
        await begin(running, client, "c1")
        answer = await client.get("/v1/stream", params=query)
    assert answer.status_code == status
    assert words in answer.json()["error"]["message"]


async def test_request_that_fails_before_output_leaves_no_stream() -> None:
    async with gateway(play=silence) as running, http(running) as client:
        headers = {"X-Conversation-Id": "c1"}
        asking = asyncio.create_task(client.post("/v1/chat/completions", json=BODY, headers=headers))
        await eventually_async(lambda: running.owner.works, 5, "the request arrives")
        running.owner.streams[1].fail(WireError(ErrorKind.OVERLOADED, "full"))
        assert (await asking).status_code == 429
        assert (await client.get("/v1/stream", params={"conv_id": "c1"})).status_code == 404


async def test_abandoned_stream_is_cancelled_and_a_finished_one_expires() -> None:
    settings = Settings(stream_detached_seconds=60)
    async with gateway(settings=settings, play=silence) as running, http(running) as client:
        await begin(running, client, "left")
        await begin(running, client, "done")
        work = running.owner.works[1]
        assert isinstance(work, Generate)
        running.owner.streams[2].answer(completed(work, 0))
        kept = running.services.conversations
        kept.sweep(100.0)
        kept.sweep(159.0)
        assert len(kept) == 2
        kept.sweep(161.0)
        assert running.owner.left == [1]
        running.owner.streams[2].completed -= 1000
        kept.sweep(162.0)
        assert len(kept) == 0
        assert len(running.services.inference) == 0


async def test_total_is_kept_by_dropping_finished_streams_and_refusing_new_ones() -> None:
    async with gateway(settings=Settings(streams_total=1000), play=silence) as running, http(running) as client:
        await begin(running, client, "done")
        work = running.owner.works[0]
        assert isinstance(work, Generate)
        running.owner.streams[1].delta(Delta(1, "x" * 2000))
        running.owner.streams[1].answer(completed(work, 1))
        await begin(running, client, "live")
        assert (await client.get("/v1/stream", params={"conv_id": "done"})).status_code == 404
        running.owner.streams[2].delta(Delta(2, "x" * 2000))
        answer = await client.post("/v1/chat/completions", json=BODY, headers={"X-Conversation-Id": "third"})
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "5"


async def test_any_request_can_be_cancelled_by_its_id() -> None:
    async with gateway(play=silence) as running, http(running) as client:
        asking = asyncio.create_task(client.post("/v1/chat/completions", json={**BODY, "stream": False}))
        await eventually_async(lambda: running.owner.works, 5, "the request arrives")
        request = next(iter(running.services.inference.tickets())).id
        assert (await client.delete(f"/requests/{request}")).json() == {"success": True}
        answer = await asking
        assert answer.status_code == 499
        assert running.owner.left == [1]
        assert (await client.delete(f"/requests/{request}")).status_code == 404


async def test_reader_that_is_too_slow_is_told_so() -> None:
    async with gateway(play=silence) as running, http(running) as client:
        await begin(running, client, "c1")
        stream = running.owner.streams[1]
        stream.delta(Delta(1, "a"))
        async with client.stream("GET", "/v1/stream", params={"conv_id": "c1"}) as answer:
            for _ in range(40):
                stream.delta(Delta(1, "x" * 400_000))
            text = (await answer.aread()).decode()
    assert '"type":"reader_too_slow"' in text.splitlines()[-2]

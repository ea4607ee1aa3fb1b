"""Streams that are cut anywhere and read on: joined, the pieces are the uncut stream."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import factory
from tests.gateway.process import running

pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]

CHAT = "/v1/chat/completions"


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=None)) as client:
        yield client


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    factory.language_model(folder / "tiny.gguf")
    return folder


def body(tokens: int, **extra: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Tell me a story."}]
    return {"model": "tiny", "messages": messages, "stream": True, "max_tokens": tokens, "ignore_eos": True, **extra}


async def read(http: httpx.AsyncClient, request: httpx.Request, got: bytearray, most: int | None = None) -> bool:
    """Append at most so many bytes of an answer; whether it ended by itself."""
    response = await http.send(request, stream=True)
    try:
        assert response.status_code == 200, await response.aread()
        async for data in response.aiter_bytes():
            room = len(data) if most is None else most
            got += data[:room]
            most = None if most is None else most - room
            if most is not None and most <= 0:
                return False
    finally:
        await response.aclose()
    return True


def ask(http: httpx.AsyncClient, url: str, name: str, tokens: int) -> httpx.Request:
    return http.build_request("POST", url + CHAT, json=body(tokens), headers={"X-Conversation-Id": name})


def resume(http: httpx.AsyncClient, url: str, name: str, offset: int) -> httpx.Request:
    return http.build_request("GET", f"{url}/v1/stream", params={"conv_id": name, "from": str(offset)})


async def leave_early(http: httpx.AsyncClient, url: str, name: str, tokens: int, seconds: float) -> bytes:
    """Ask, and go away so long after the stream has come to be; what has been read until then."""
    got = bytearray()
    job = asyncio.create_task(read(http, ask(http, url, name, tokens), got))
    while not (await http.post(f"{url}/v1/streams/lookup", json={"conversation_ids": [name]})).json():
        assert not job.done()
    await asyncio.wait([job], timeout=seconds)
    job.cancel()
    await asyncio.gather(job, return_exceptions=True)
    return bytes(got)


async def joined(
    http: httpx.AsyncClient, url: str, name: str, rng: random.Random, tokens: int, first_cut: float | None
) -> bytes:
    """A stream read in random pieces. The first is cut after `first_cut` seconds, whatever has come by then."""

    def size() -> int:
        return rng.choice((1, 7, rng.randint(1, 400), rng.randint(1, 6000)))

    got, ended = bytearray(), False
    if first_cut is None:
        ended = await read(http, ask(http, url, name, tokens), got, size())
    else:
        got += await leave_early(http, url, name, tokens, first_cut)
    while not ended:
        ended = await read(http, resume(http, url, name, len(got)), got, size())
    return bytes(got)


async def uncut(http: httpx.AsyncClient, url: str, name: str) -> bytes:
    return (await http.get(f"{url}/v1/stream", params={"conv_id": name, "from": "0"})).content


def text_of(stream: bytes) -> str:
    events = [json.loads(line[6:]) for line in stream.decode().splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event.get("choices", ()))


@pytest.mark.parametrize("count", [20, pytest.param(100, marks=pytest.mark.slow)])
async def test_streams_cut_at_random_bytes(count: int, models: Path, tmp_path: Path, http: httpx.AsyncClient) -> None:
    """More at once than there are slots, so that many are cut while they wait, and the first ones while it loads."""
    rng = random.Random(count)
    with running(tmp_path / "home", "--models-dir", str(models), "--early-headers-ms", "20") as gateway:
        url = gateway.url
        names = [f"c{number}" for number in range(count)]
        cuts = [rng.random() * 0.3 if number % 2 else None for number in range(count)]
        streams = await asyncio.gather(
            *[joined(http, url, name, rng, 60, cut) for name, cut in zip(names, cuts, strict=True)]
        )
        for name, stream in zip(names, streams, strict=True):
            assert stream == await uncut(http, url, name)
            assert stream.endswith(b"data: [DONE]\n\n")
        answer = await http.post(url + CHAT, json=body(60, temperature=0) | {"stream": False})
        assert answer.status_code == 200
        assert all(len(text_of(stream).split()) > 20 for stream in streams)


async def test_a_stream_cut_before_its_first_token(models: Path, tmp_path: Path, http: httpx.AsyncClient) -> None:
    """The client leaves before it has seen a single byte, while the model loads and while the only slot is taken."""
    with running(tmp_path / "home", "--models-dir", str(models), "--parallel", "1", "--spare-workers", "0") as gateway:
        url = gateway.url
        assert await leave_early(http, url, "loading", 300, 0.0) == b""
        loading = asyncio.create_task(uncut(http, url, "loading"))
        assert await leave_early(http, url, "queued", 8, 0.0) == b""
        for name, stream in (("queued", await uncut(http, url, "queued")), ("loading", await loading)):
            assert stream.endswith(b"data: [DONE]\n\n"), name
            assert len(text_of(stream).split()) >= 4, name


async def test_a_stream_across_a_crash_ends_with_the_error(
    models: Path, tmp_path: Path, http: httpx.AsyncClient
) -> None:
    with running(tmp_path / "home", "--models-dir", str(models)) as gateway:
        got = bytearray()
        assert not await read(http, ask(http, gateway.url, "c", 3000), got, 2000)
        gateway.worker_of(models / "tiny.gguf").kill()
        assert await read(http, resume(http, gateway.url, "c", len(got)), got)
        assert got == await uncut(http, gateway.url, "c")
        last = got.decode().strip().splitlines()[-1]
        assert json.loads(last.removeprefix("data: "))["error"]["message"]
        assert (await http.post(gateway.url + CHAT, json=body(2) | {"stream": False})).status_code == 200

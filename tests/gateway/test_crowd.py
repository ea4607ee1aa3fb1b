"""Five hundred idle and many active streams at once: all are served, and memory does not grow from crowd to crowd."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path

import httpx
import psutil
import pytest

from tests import factory
from tests.gateway.process import running

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(300)]

IDLE = 500
ACTIVE = 64
TOKENS = 150


class Crowd:
    """Clients of the event stream, who read whatever comes and leave when the crowd is over."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: list[asyncio.StreamWriter] = []
        self._readers: list[asyncio.Task[None]] = []

    async def gather(self, count: int) -> None:
        for _ in range(count):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            writer.write(b"GET /models/sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"200"
            self._writers.append(writer)
            self._readers.append(asyncio.create_task(self._drain(reader)))

    async def _drain(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(1 << 16):
                pass

    async def leave(self) -> None:
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*self._readers)


async def stream(port: int) -> int:
    """Chunks of one streamed answer, which ends as it should."""
    message = {"role": "user", "content": "Hello"}
    fields = {"model": "tiny", "messages": [message], "stream": True, "max_tokens": TOKENS, "ignore_eos": True}
    body = json.dumps(fields).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"POST /v1/chat/completions HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode() + body)
        answer = await reader.read()
    finally:
        writer.close()
    assert b"data: [DONE]" in answer
    return answer.count(b'"content":"')


async def test_a_crowd_is_served_and_leaves_no_memory_behind(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    factory.language_model(models / "tiny.gguf")
    options = ("--models-dir", str(models), "--parallel", "8", "--ctx-size", "8192", "--threads", "1")
    resident: list[int] = []
    with running(tmp_path / "home", *options) as gateway:
        port = httpx.URL(gateway.url).port
        assert port is not None
        router = psutil.Process(gateway.process.pid)
        for _ in range(6):
            crowd = Crowd(port)
            await crowd.gather(IDLE)
            chunks = await asyncio.gather(*[stream(port) for _ in range(ACTIVE)])
            assert min(chunks) > TOKENS // 3
            await crowd.leave()
            resident.append(router.memory_info().rss)
    # The first crowd sets the high-water mark of the allocators; the ones behind it must fit into what it left.
    assert resident[0] < 75 << 20
    assert resident[-1] <= 1.03 * resident[1], resident

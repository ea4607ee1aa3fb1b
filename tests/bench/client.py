"""A frugal streaming client: the standard library alone, so that the load costs little beside the engine."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

WORDS = (
    "llama herd mountain river stone bread market morning cloud bridge winter harvest lantern valley copper garden "
    "thunder village silver meadow canyon orchard saddle compass granite prairie walnut feather kettle harbor"
).split()


@dataclass
class Answer:
    """One streamed answer: when it was sent, when each content chunk arrived (seconds), its text, its error."""

    sent: float
    stamps: list[float] = field(default_factory=list)
    text: str = ""
    error: str = ""

    @property
    def first_ms(self) -> float:
        if not self.stamps:
            raise RuntimeError(f"no output: {self.error or 'empty answer'}")
        return (self.stamps[0] - self.sent) * 1e3

    @property
    def gaps_ms(self) -> list[float]:
        return [(b - a) * 1e3 for a, b in zip(self.stamps, self.stamps[1:], strict=False)]


def words(rng: random.Random, count: int) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(count))


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def chat(model: str, messages: list[dict[str, str]], max_tokens: int, **extra: Any) -> dict[str, Any]:
    return {
        "model": model,
        "stream": True,
        "max_tokens": max_tokens,
        "ignore_eos": True,
        "temperature": 0.0,
        "messages": messages,
        **extra,
    }


def _head(method: str, path: str, body: bytes, close: bool = True) -> bytes:
    connection = "close" if close else "keep-alive"
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: {connection}\r\n\r\n"
    ).encode()


async def stream(
    port: int, body: dict[str, Any], on_chunk: Callable[[int], Awaitable[bool | None]] | None = None
) -> Answer:
    """POST a streaming chat. `on_chunk(n)` is awaited after content chunk n; returning True hangs up."""
    data = json.dumps(body).encode()
    answer = Answer(time.perf_counter())
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        writer.write(_head("POST", "/v1/chat/completions", data) + data)
        await writer.drain()
        if (await reader.readline()).split()[1:2] != [b"200"]:
            answer.error = (await reader.read()).decode(errors="replace")[:300]
            return answer
        while line := await reader.readline():
            if not line.startswith(b"data:"):
                continue
            payload = line[5:].strip()
            if payload == b"[DONE]":
                break
            event = json.loads(payload)
            if "error" in event:
                answer.error = str(event["error"])[:300]
                break
            text = "".join((c.get("delta") or {}).get("content") or "" for c in event.get("choices", []))
            if text:
                answer.stamps.append(time.perf_counter())
                answer.text += text
                if on_chunk and await on_chunk(len(answer.stamps)):
                    break
    finally:
        writer.close()
    return answer


async def call(port: int, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
    """One plain request on a connection of its own. Returns the status and the body."""
    data = b"" if body is None else json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        writer.write(_head(method, path, data) + data)
        await writer.drain()
        raw = await reader.read()
    finally:
        writer.close()
    head, _, rest = raw.partition(b"\r\n\r\n")
    return int(head.split()[1]), rest


async def hammer(port: int, path: str, body: Any, connections: int, requests: int) -> float:
    """Requests per second over connections kept as long as the server keeps them; each answer must be a 200.

    A server may close a kept connection instead of reading the next request from it, which is then sent again.
    """
    data = json.dumps(body).encode()
    frame = _head("POST", path, data, close=False) + data
    todo = iter(range(requests))

    async def lane() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for _ in todo:
                while not (head := await _ask(reader, writer, frame)):
                    writer.close()
                    reader, writer = await asyncio.open_connection("127.0.0.1", port)
                if head.split()[1] != b"200":
                    raise RuntimeError(head.decode(errors="replace"))
                await _skip_body(reader, head)
        finally:
            writer.close()

    start = time.perf_counter()
    await asyncio.gather(*[lane() for _ in range(connections)])
    return requests / (time.perf_counter() - start)


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame: bytes) -> bytes:
    """The head of the answer, in lower case; empty if the server closed the connection before it began."""
    try:
        writer.write(frame)
        return (await reader.readuntil(b"\r\n\r\n")).lower()
    except ConnectionError:
        return b""
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return b""


async def _skip_body(reader: asyncio.StreamReader, head: bytes) -> None:
    """Read past a body of either framing, as its headers (in lower case) say."""
    lengths = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
    if lengths:
        await reader.readexactly(lengths[0])
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readline()


def quantile(values: list[float], fraction: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]

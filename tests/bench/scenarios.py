"""What is measured, one coroutine each: it takes a running gateway and returns figures by name."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import statistics
import time
from collections.abc import AsyncIterator

from tests.bench.client import Answer, call, chat, hammer, quantile, stream, user, words
from tests.bench.servers import Gateway

Figures = dict[str, float]


def _check(answers: list[Answer]) -> None:
    errors = [a.error or "no output" for a in answers if a.error or not a.stamps]
    if errors:
        raise RuntimeError("; ".join(sorted(set(errors)))[:500])


async def throughput(gateway: Gateway, model: str, rng: random.Random, clients: int) -> Figures:
    """Streamed chunks per second of `clients` that each send one request after the other, and their first tokens."""
    todo = iter(range(max(2 * clients, 4)))
    answers: list[Answer] = []

    async def lane() -> None:
        for _ in todo:
            body = chat(model, [user("Tell a story about: " + words(rng, 20))], 64, temperature=0.8, cache_prompt=False)
            answers.append(await stream(gateway.port, body | {"seed": rng.randrange(1 << 30)}))

    start = time.perf_counter()
    await asyncio.gather(*[lane() for _ in range(clients)])
    wall = time.perf_counter() - start
    _check(answers)
    return {"tokens_per_s": sum(len(a.stamps) for a in answers) / wall}


async def first_token(gateway: Gateway, model: str, rng: random.Random) -> Figures:
    """Median first token of 8 clients that come at once with ~80-token prompts."""
    bodies = [chat(model, [user("Tell a story about: " + words(rng, 50))], 64, cache_prompt=False) for _ in range(8)]
    answers = await asyncio.gather(*[stream(gateway.port, body) for body in bodies])
    _check(list(answers))
    return {"first_ms": statistics.median(a.first_ms for a in answers)}


async def late(gateway: Gateway, model: str, rng: random.Random) -> Figures:
    """Four streams decode, then a ~1,500-token prompt arrives."""
    go = asyncio.Event()
    seen = [0] * 4

    async def watch(index: int, count: int) -> None:
        seen[index] = count
        if min(seen) >= 8:
            go.set()

    four = [
        asyncio.create_task(
            stream(
                gateway.port,
                chat(model, [user(words(rng, 20))], 96, cache_prompt=False),
                lambda n, i=i: watch(i, n),  # type: ignore[misc]
            )
        )
        for i in range(4)
    ]
    await go.wait()
    newcomer = await stream(gateway.port, chat(model, [user(words(rng, 1100))], 4, cache_prompt=False))
    answers = await asyncio.gather(*four)
    _check([*answers, newcomer])
    return {"longest_gap_ms": max(max(a.gaps_ms) for a in answers), "late_first_ms": newcomer.first_ms}


async def long_prompt(gateway: Gateway, model: str, rng: random.Random) -> Figures:
    """An ~8,000-token prompt alone."""
    answer = await stream(gateway.port, chat(model, [user(words(rng, 5800))], 2, cache_prompt=False))
    _check([answer])
    return {"first_ms": answer.first_ms}


async def shared_prefix(gateway: Gateway, model: str, rng: random.Random) -> Figures:
    """Eight clients together with one ~1,000-token system prompt and different questions."""
    system = {"role": "system", "content": words(rng, 750)}
    start = time.perf_counter()
    answers = await asyncio.gather(
        *[stream(gateway.port, chat(model, [system, user(words(rng, 10))], 16)) for _ in range(8)]
    )
    _check(list(answers))
    return {"total_ms": (time.perf_counter() - start) * 1e3}


async def cancel(gateway: Gateway, model: str, rng: random.Random) -> Figures:
    """Four ~4,000-token prompts are cut 0.5 s in; how long a short request sent then takes."""

    async def short() -> float:
        answer = await stream(gateway.port, chat(model, [user("hi")], 1, cache_prompt=False))
        _check([answer])
        return answer.first_ms

    await short()
    big = [
        asyncio.create_task(stream(gateway.port, chat(model, [user(words(rng, 2900))], 4, cache_prompt=False)))
        for _ in range(4)
    ]
    await asyncio.sleep(0.5)
    for task in big:
        task.cancel()
    await asyncio.gather(*big, return_exceptions=True)
    return {"served_ms": await short()}


async def swap(gateway: Gateway, models: tuple[str, str], rng: random.Random) -> Figures:
    """Requests alternate between two models of which one fits: first tokens of each after a swap.

    They come a second after the last answer, as after a look at it: a warm spare is there again.
    """
    first: dict[str, list[float]] = {model: [] for model in models}
    for turn in range(10):
        model = models[turn % 2]
        answer = await stream(gateway.port, chat(model, [user("hi")], 2))
        _check([answer])
        if turn >= 2:
            first[model].append(answer.first_ms)
        await asyncio.sleep(1)
    return {f"first_ms_{index}": statistics.median(first[model]) for index, model in enumerate(models)}


async def come_back(gateway: Gateway, models: tuple[str, str], rng: random.Random) -> Figures:
    """A ~2,000-token chat is swapped out by one request to another model, and goes on a second after its answer."""
    history = [user(words(rng, 1450))]
    opening = await stream(gateway.port, chat(models[0], history, 16))
    other = await stream(gateway.port, chat(models[1], [user("hi")], 2))
    await asyncio.sleep(1)
    history += [{"role": "assistant", "content": opening.text}, user("and then?")]
    again = await stream(gateway.port, chat(models[0], history, 4))
    _check([opening, other, again])
    return {"return_ms": again.first_ms}


async def duo(gateway: Gateway, models: tuple[str, str], rng: random.Random) -> Figures:
    """Four streams on each of two models at once: the sum of their rates beside the mean of each alone."""

    async def run(model: str, tokens: int = 48) -> float:
        start = time.perf_counter()
        answers = await asyncio.gather(
            *[stream(gateway.port, chat(model, [user(words(rng, 5))], tokens, cache_prompt=False)) for _ in range(4)]
        )
        _check(list(answers))
        return sum(len(a.stamps) for a in answers) / (time.perf_counter() - start)

    for model in models:
        await run(model, 2)
    alone = [await run(model) for model in models]
    both = await asyncio.gather(*[run(model) for model in models])
    return {"share": sum(both) / statistics.mean(alone), "sum_tokens_per_s": sum(both)}


@contextlib.asynccontextmanager
async def _health_times(port: int) -> AsyncIterator[list[float]]:
    """Milliseconds of a GET /health every 20 ms for as long as the block runs."""
    times: list[float] = []

    async def poll() -> None:
        while True:
            start = time.perf_counter()
            await call(port, "GET", "/health")
            times.append((time.perf_counter() - start) * 1e3)
            await asyncio.sleep(0.02)

    poller = asyncio.create_task(poll())
    try:
        yield times
    finally:
        poller.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await poller


async def health(gateway: Gateway, models: tuple[str, str], rng: random.Random) -> Figures:
    """p99 of GET /health at 20 ms intervals while eight streams run and another model loads."""
    async with _health_times(gateway.port) as times:
        jobs = [stream(gateway.port, chat(models[0], [user(words(rng, 20))], 64)) for _ in range(8)]
        answers = await asyncio.gather(*jobs, stream(gateway.port, chat(models[1], [user("hi")], 4)))
    _check(list(answers))
    return {"p99_ms": quantile(times, 0.99)}


async def scrape(gateway: Gateway, models: tuple[str, str], rng: random.Random) -> Figures:
    """Median of a scrape with no work, and beside eight streams.

    llamaherd answers for all models, each of which has run and so has all its series; llama-server for one.
    """
    path = f"/metrics?model={models[0]}"
    if gateway.name == "llamaherd":
        path = "/metrics"
        _, listed = await call(gateway.port, "GET", "/v1/models")
        for model in json.loads(listed)["data"]:
            _check([await stream(gateway.port, chat(model["id"], [user("hi")], 2))])
    idle = await _scrape_times(gateway.port, path)
    begun = asyncio.Event()

    async def note(chunks: int) -> None:
        begun.set()

    bodies = [chat(models[0], [user(words(rng, 20))], 4000) for _ in range(8)]
    streams = [asyncio.create_task(stream(gateway.port, body, note)) for body in bodies]
    await begun.wait()
    busy = await _scrape_times(gateway.port, path)
    running = sum(not task.done() for task in streams)
    for task in streams:
        task.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    if running < len(streams):
        raise RuntimeError(f"{len(streams) - running} streams ended before the scrapes did")
    return {"idle_ms": statistics.median(idle), "busy_ms": statistics.median(busy)}


async def _scrape_times(port: int, path: str) -> list[float]:
    """Milliseconds of 120 scrapes, one every 50 ms."""
    times: list[float] = []
    for _ in range(120):
        await asyncio.sleep(0.05)
        start = time.perf_counter()
        status, _ = await call(port, "GET", path)
        times.append((time.perf_counter() - start) * 1e3)
        if status != 200:
            raise RuntimeError(f"the scrape was answered with {status}")
    return times


async def readers(gateway: Gateway, models: tuple[str, str], rng: random.Random) -> Figures:
    """p99 of GET /health while two models swap six times and 200 clients read their events."""
    tasks: list[asyncio.Task[None]] = []

    async def follow() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        try:
            writer.write(b"GET /models/sse HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while await reader.read(1 << 16):
                pass
        finally:
            writer.close()

    for _ in range(200):
        tasks.append(asyncio.create_task(follow()))
    await asyncio.sleep(1)
    async with _health_times(gateway.port) as times:
        answers = [await stream(gateway.port, chat(models[turn % 2], [user("hi")], 4)) for turn in range(6)]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    _check(answers)
    return {"p99_ms": quantile(times, 0.99)}


async def tokenize(gateway: Gateway, model: str, rng: random.Random) -> Figures:
    """Requests per second for /tokenize through the router over 16 connections, once the first load has settled."""
    body = {"model": model, "content": words(rng, 20)}
    await asyncio.sleep(1)
    await hammer(gateway.port, "/tokenize", body, 16, 1000)
    return {"requests_per_s": await hammer(gateway.port, "/tokenize", body, 16, 4000)}

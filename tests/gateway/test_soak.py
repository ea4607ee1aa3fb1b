"""Thousands of requests of every length, many of them cut short: nothing is left behind.

`SOAK_REQUESTS` sets how many are sent. Memory is compared once two fifths of them have warmed everything up: states of
all sizes come and go on the shelf, and it takes some thousand until the allocator's heap has found its size.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests import factory
from tests.gateway.process import Gateway, running

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(1200)]

REQUESTS = int(os.environ.get("SOAK_REQUESTS", "10000"))
CLIENTS = 16
SLOTS = 4
CTX = 1024
KEEP = 2 << 20
WORDS = "the man and the dog went to the house by the water where people often asked what was next".split()


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=None)) as client:
        yield client


def body(rng: random.Random, heads: list[str]) -> dict[str, Any]:
    prompt = rng.choice(heads) + " ".join(rng.choices(WORDS, k=rng.randint(0, 80)))
    return {
        "model": "tiny",
        "prompt": prompt,
        "n_predict": rng.randint(0, 60),
        "stream": rng.random() < 0.5,
        "cache_prompt": rng.random() < 0.8,
        "temperature": rng.choice((0.0, 0.8)),
    }


async def ask(http: httpx.AsyncClient, url: str, request: dict[str, Any]) -> int:
    answer = await http.post(f"{url}/completion", json=request)
    return answer.status_code


async def soak(http: httpx.AsyncClient, url: str, requests: int, seed: int) -> None:
    """Every client sends one request after the other; about a quarter of them is given up at some moment."""
    rng = random.Random(seed)
    heads = [" ".join(rng.choices(WORDS, k=rng.randint(0, 120))) + " " for _ in range(6)]
    todo = iter(range(requests))

    async def client() -> None:
        for _ in todo:
            job = asyncio.ensure_future(ask(http, url, body(rng, heads)))
            if rng.random() < 0.25:
                await asyncio.wait([job], timeout=rng.random() * 0.2)
                job.cancel()
                await asyncio.gather(job, return_exceptions=True)
            else:
                assert await job == 200

    await asyncio.gather(*[client() for _ in range(CLIENTS)])


async def metric(http: httpx.AsyncClient, url: str, name: str) -> int:
    text = (await http.get(f"{url}/metrics")).text
    found = re.search(rf"^llamaherd_{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return int(float(found[1]))


async def idle(http: httpx.AsyncClient, url: str) -> None:
    async def slots_idle() -> bool:
        slots = (await http.get(f"{url}/slots", params={"model": "tiny"})).json()
        return len(slots) == SLOTS and not any(slot["is_processing"] for slot in slots)

    loop = asyncio.get_running_loop()
    deadline = loop.time() + 30
    while not await slots_idle():
        assert loop.time() < deadline, "a slot is stuck"
        await asyncio.wait([loop.create_future()], timeout=0.1)


def resident(gateway: Gateway, file: Path) -> dict[str, int]:
    worker = gateway.worker_of(file)
    return {"router": psutil.Process(gateway.process.pid).memory_info().rss, "worker": worker.memory_info().rss}


def kept_bytes(home: Path) -> int:
    """What is kept of this model's state on disk."""
    return sum(path.stat().st_size for folder in home.rglob("kv") for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("keep", [0, KEEP])
async def test_thousands_of_requests_leave_nothing_behind(keep: int, tmp_path: Path, http: httpx.AsyncClient) -> None:
    models = tmp_path / "models"
    models.mkdir()
    file = factory.language_model(models / "tiny.gguf", end_bias=2.0)
    options = ("--models-dir", str(models), "--ctx-size", str(CTX), "--parallel", str(SLOTS), "--threads", "1")
    # Little memory for idle sequences, so that it is full before the first look.
    options = (*options, "--cache-ram", "4", "--kv-keep", str(keep))
    with running(tmp_path / "home", *options) as gateway:
        await soak(http, gateway.url, 2 * REQUESTS // 5, 1)
        await idle(http, gateway.url)
        before = resident(gateway, file)
        await soak(http, gateway.url, REQUESTS - 2 * REQUESTS // 5, 2)
        await idle(http, gateway.url)
        after = resident(gateway, file)
        assert await metric(http, gateway.url, "model_kv_cells_used") <= CTX
        grown = {name: after[name] / before[name] - 1 for name in before}
        assert all(growth <= 0.03 for growth in grown.values()), (grown, before, after)
        for slot in range(SLOTS):
            erased = await http.post(f"{gateway.url}/slots/{slot}", params={"action": "erase", "model": "tiny"})
            assert erased.status_code == 200, erased.text
        async with asyncio.timeout(5):  # the numbers are sent a few times a second
            while await metric(http, gateway.url, "model_kv_cells_used"):
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.1)
    assert kept_bytes(tmp_path / "home") <= keep

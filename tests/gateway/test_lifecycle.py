"""Many models behind one gateway: swapping, sleeping, wedging, and nobody loses an answer."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import factory
from tests.eventually import eventually_async
from tests.gateway.process import Gateway, running
from tests.scenarios.reference_fifo import Recorded, loads

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def herd_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("herd")
    for seed, name in enumerate(("ann", "bob", "cid")):
        factory.language_model(folder / f"{name}.gguf", seed=seed)
    return folder


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=120, limits=limits) as client:
        yield client


def body(model: str, tokens: int, **extra: Any) -> dict[str, Any]:
    message = {"role": "user", "content": "Tell me a story."}
    return {"model": model, "messages": [message], "max_tokens": tokens, "ignore_eos": True} | extra


async def tokens_of(http: httpx.AsyncClient, gateway: Gateway, request: dict[str, Any]) -> int:
    """Completion tokens of a request that must be served whole, streamed or not."""
    options = {"stream_options": {"include_usage": True}} if request.get("stream") else {}
    response = await http.post(gateway.url + CHAT, json=request | options)
    assert response.status_code == 200, response.text
    if not request.get("stream"):
        return int(response.json()["usage"]["completion_tokens"])
    lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]", lines[-1]
    return int(json.loads(lines[-2].removeprefix("data: "))["usage"]["completion_tokens"])


async def load_count(http: httpx.AsyncClient, gateway: Gateway) -> int:
    """Loads of all models so far, from the metrics."""
    text = (await http.get(f"{gateway.url}/metrics")).text
    return sum(int(float(v)) for v in re.findall(r"^llamaherd_load_seconds_count\{[^}]*\} (\S+)$", text, re.MULTILINE))


async def test_agents_that_swap_all_day_get_every_answer(
    herd_dir: Path, tmp_path: Path, http: httpx.AsyncClient
) -> None:
    rng = random.Random(11)
    todo = iter(range(200))
    recorded: list[Recorded] = []
    with running(tmp_path, "--models-dir", str(herd_dir), "--models-max", "1", "--ctx-size", "2048") as gateway:

        async def agent() -> None:
            for number in todo:
                model, tokens = rng.choice(("ann", "bob", "cid")), rng.randint(1, 24)
                request = body(model, tokens, stream=rng.random() < 0.5)
                leaves = rng.random() < 0.05
                recorded.append(("arrive", number, model))
                job = asyncio.ensure_future(tokens_of(http, gateway, request))
                if leaves:
                    await asyncio.wait([job], timeout=rng.random() * 0.5)
                    job.cancel()
                    await asyncio.gather(job, return_exceptions=True)
                else:
                    assert await job == tokens
                recorded.append(("leave" if leaves else "end", number, model))

        await asyncio.gather(*[agent() for _ in range(12)])
        assert await load_count(http, gateway) <= loads(recorded)


async def test_a_busy_model_makes_way_and_its_long_answer_arrives_whole(
    herd_dir: Path, tmp_path: Path, http: httpx.AsyncClient
) -> None:
    arguments = ("--models-max", "1", "--max-swap-wait", "2", "--drain-timeout", "1", "--ctx-size", "4096")
    with running(tmp_path, "--models-dir", str(herd_dir), *arguments) as gateway:
        await tokens_of(http, gateway, body("ann", 1))
        done = asyncio.Event()

        async def keep_busy() -> None:
            while not done.is_set():
                await tokens_of(http, gateway, body("ann", 50))

        crowd = [asyncio.ensure_future(keep_busy()) for _ in range(3)]
        long = asyncio.ensure_future(tokens_of(http, gateway, body("ann", 2000, stream=True)))
        await asyncio.wait([long], timeout=0.3)
        assert not long.done()
        loop = asyncio.get_running_loop()
        asked = loop.time()
        assert await tokens_of(http, gateway, body("bob", 1)) == 1
        waited = loop.time() - asked
        assert waited < 2 + 1 + 5, "a swap wait, a drain timeout and a load"
        assert await long == 2000
        done.set()
        await asyncio.gather(*crowd)


@pytest.mark.slow
async def test_five_hundred_naps_lose_nothing(herd_dir: Path, tmp_path: Path, http: httpx.AsyncClient) -> None:
    rng = random.Random(5)
    with running(tmp_path, "--models-dir", str(herd_dir), "--sleep-idle-seconds", "0.05") as gateway:
        loop = asyncio.get_running_loop()
        await tokens_of(http, gateway, body("ann", 1))
        slowest = 0.0
        for _ in range(500):
            await asyncio.wait([loop.create_future()], timeout=rng.random() * 0.2)
            start = loop.time()
            assert await tokens_of(http, gateway, body("ann", 2)) == 2
            slowest = max(slowest, loop.time() - start)
        decisions = (await http.get(f"{gateway.url}/queue")).json()["decisions"]
        wakes = sum(decision["decision"] == "wake" for decision in decisions)
        assert wakes > 20, "of the newest decisions many are wakeups"
        assert slowest < 5


async def test_a_sleeping_model_wakes_for_every_route_and_for_no_look(
    herd_dir: Path, tmp_path: Path, http: httpx.AsyncClient
) -> None:
    async def state() -> str:
        entry = (await http.get(f"{gateway.url}/v1/models/ann")).json()
        return str(entry["status"]["value"])

    async def asleep() -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + 15
        while await state() != "sleeping":
            assert loop.time() < deadline, await state()
            await asyncio.wait([loop.create_future()], timeout=0.05)

    messages = [{"role": "user", "content": "Hello"}]
    works: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"messages": messages, "max_tokens": 1}),
        ("/v1/completions", {"prompt": "Hello", "max_tokens": 1}),
        ("/v1/responses", {"input": "Hello", "max_output_tokens": 1}),
        ("/v1/messages", {"messages": messages, "max_tokens": 1}),
        ("/completion", {"prompt": "Hello", "n_predict": 1}),
        ("/tokenize", {"content": "Hello"}),
        ("/detokenize", {"tokens": [5, 6]}),
        ("/apply-template", {"messages": messages}),
        ("/v1/messages/count_tokens", {"messages": messages}),
        ("/api/chat", {"messages": messages, "stream": False, "options": {"num_predict": 1}}),
        ("/api/generate", {"prompt": "Hello", "stream": False, "options": {"num_predict": 1}}),
    ]
    looks = ("/models", "/v1/models", "/props?model=ann", "/slots?model=ann", "/metrics", "/health", "/queue")
    with running(tmp_path, "--models-dir", str(herd_dir), "--sleep-idle-seconds", "0.2") as gateway:
        await tokens_of(http, gateway, body("ann", 1))
        for path, request in works:
            await asleep()
            response = await http.post(gateway.url + path, json=request | {"model": "ann"})
            assert response.status_code == 200, (path, response.text)
        await asleep()
        for path in looks:
            assert (await http.get(gateway.url + path)).status_code == 200, path
            assert await state() == "sleeping", path


async def test_a_stopped_worker_is_found_wedged_and_its_requests_are_served(
    herd_dir: Path, tmp_path: Path, http: httpx.AsyncClient
) -> None:
    with running(tmp_path, "--models-dir", str(herd_dir), "--wedge-after", "1") as gateway:
        await tokens_of(http, gateway, body("ann", 1))
        gateway.worker_of(herd_dir / "ann.gguf").send_signal(signal.SIGSTOP)
        assert await tokens_of(http, gateway, body("ann", 3)) == 3


async def test_presets_that_differ_in_defaults_share_one_worker(
    herd_dir: Path, tmp_path: Path, http: httpx.AsyncClient
) -> None:
    presets = tmp_path / "presets.ini"
    presets.write_text(
        f"[cold]\nmodel = {herd_dir / 'ann.gguf'}\ntemp = 0\n\n"
        f'[hot]\nmodel = {herd_dir / "ann.gguf"}\ntemp = 1.5\nchat-template-kwargs = {{"mood": "wild"}}\n'
    )
    with running(tmp_path / "home", "--models-preset", str(presets), "--spare-workers", "0") as gateway:
        for name in ("cold", "hot", "cold"):
            response = await http.post(gateway.url + CHAT, json=body(name, 2))
            assert response.json()["model"] == name
        await eventually_async(lambda: len(gateway.workers()) == 1, 5, "one worker process for both")


async def test_a_budget_for_two_of_three_evicts_one_and_one_for_none_names_the_numbers(
    herd_dir: Path, tmp_path: Path, http: httpx.AsyncClient
) -> None:
    async def resident() -> set[str]:
        data = (await http.get(f"{gateway.url}/models")).json()["data"]
        return {entry["id"] for entry in data if entry["status"]["value"] == "loaded"}

    arguments = ("--models-dir", str(herd_dir), "--ctx-size", "2048", "--spare-workers", "0")
    with running(tmp_path, *arguments) as gateway:
        for name in ("ann", "bob", "cid"):
            await tokens_of(http, gateway, body(name, 1))
        data = (await http.get(f"{gateway.url}/models")).json()["data"]
        assert await resident() == {"ann", "bob", "cid"}
    # What was measured is kept in the state folder, where the next gateway finds it.
    needs = [entry["memory"]["anonymous"] for entry in data]
    with running(tmp_path, *arguments, "--memory-budget", str(int(min(needs) * 2.5))) as gateway:
        for name in ("ann", "bob", "cid"):
            await tokens_of(http, gateway, body(name, 1))
        assert await resident() == {"bob", "cid"}
    with running(tmp_path, *arguments, "--memory-budget", str(min(needs) // 2)) as gateway:
        refused = await http.post(gateway.url + CHAT, json=body("ann", 1))
        assert refused.status_code in (400, 500, 503, 507)
        message = refused.json()["error"]["message"]
        assert len(re.findall(r"\d", message)) > 2, message


async def test_a_worker_that_always_dies_cools_down_and_disturbs_nobody(
    herd_dir: Path, tmp_path: Path, http: httpx.AsyncClient
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "ann.gguf").symlink_to(herd_dir / "ann.gguf")
    factory.unknown_architecture(folder / "bad.gguf")
    arguments = ("--models-dir", str(folder), "--cooldown-failures", "2")
    with running(tmp_path / "home", *arguments) as gateway:
        for _ in range(4):
            refused = await http.post(gateway.url + CHAT, json=body("bad", 1))
            assert refused.status_code in (500, 503)
            assert await tokens_of(http, gateway, body("ann", 2)) == 2
        status = (await http.get(f"{gateway.url}/v1/models/bad")).json()["status"]
        assert status["failed"]
        assert status["reason"]
        assert int(refused.headers["retry-after"]) > 0


async def test_readers_of_the_event_stream_see_each_event_once(
    herd_dir: Path, tmp_path: Path, http: httpx.AsyncClient
) -> None:
    """Readers that come back with the last id they saw miss nothing and see nothing twice."""

    async def follow(events: list[tuple[str, str]], enough: asyncio.Event) -> None:
        while not enough.is_set():
            headers = {"Last-Event-ID": events[-1][0]} if events else {}
            async with http.stream("GET", f"{gateway.url}/models/sse", headers=headers) as response:
                identity = ""
                async for line in response.aiter_lines():
                    if line.startswith("id:"):
                        identity = line[3:].strip()
                    elif line.startswith("data:") and identity:
                        events.append((identity, line))
                        identity = ""
                        if len(events) % 7 == 0:
                            break
                    if enough.is_set():
                        break

    with running(tmp_path, "--models-dir", str(herd_dir), "--models-max", "1") as gateway:
        enough = asyncio.Event()
        seen: list[list[tuple[str, str]]] = [[] for _ in range(200)]
        readers = [asyncio.ensure_future(follow(events, enough)) for events in seen]
        for turn in range(10):
            await tokens_of(http, gateway, body(("ann", "bob")[turn % 2], 2))
        last = await _last_id(http, gateway)
        await eventually_async(lambda: all(e and _number(e[-1][0]) >= last for e in seen), 30, "all have caught up")
        enough.set()
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
    for events in seen:
        numbers = [_number(identity) for identity, _ in events]
        live = [n for n in numbers if n > numbers[0]]
        assert live == sorted(set(live))
        assert set(range(numbers[0] + 1, last + 1)) <= set(live)


async def _last_id(http: httpx.AsyncClient, gateway: Gateway) -> int:
    """The id that the snapshot of a fresh event stream carries."""
    async with http.stream("GET", f"{gateway.url}/models/sse") as response:
        async for line in response.aiter_lines():
            if line.startswith("id:"):
                return _number(line[3:].strip())
    raise AssertionError("no id")


def _number(identity: str) -> int:
    return int(re.findall(r"\d+", identity)[-1])

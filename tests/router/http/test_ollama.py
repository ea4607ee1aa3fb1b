"""Ollama's API with its Python client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import ollama
import pytest

from protocol.chat import ChatMessage, ChatPrompt, ImagePart, InfillPrompt, TextPrompt
from protocol.errors import ErrorKind, WireError
from protocol.generate import Delta, DeltaExtra, Generate
from protocol.load import ModelInfo
from protocol.sampling import JsonSchema
from router.config.facts import Identity, ModelFacts
from router.http.copies import Copies
from router.http.errors import ApiError
from router.http.ollama_request import keep_alive
from router.scheduling.events import LoadAsked, UnloadAsked
from router.supervision.state import StateFolder
from router.transport.stream import RequestStream
from tests.router.http.gateway import SMOL, Running, fail, gateway, rich, tool_call
from tests.router.http.test_native import answers

HI: Any = [{"role": "user", "content": "hi"}]
FACTS = ModelFacts(
    architecture="llama",
    n_ctx_train=2048,
    n_embd=576,
    n_params=134_515_008,
    file_type="Q4_1",
    chat_template="{% if tools %}{% endif %}",
    files=(("/models/smol.gguf", Identity(1, 2, 98_765_432, 1_700_000_000_000_000_000), 90_000_000),),
    layer_bytes=(1,) * 30,
)
KNOWN = msgspec.structs.replace(SMOL, facts=FACTS)


def client(running: Running) -> ollama.AsyncClient:
    return ollama.AsyncClient(host=running.url)


def work(running: Running, index: int = -1) -> Generate:
    found = running.owner.works[index]
    assert isinstance(found, Generate)
    return found


def prompt(running: Running) -> ChatPrompt:
    found = work(running).prompt
    assert isinstance(found, ChatPrompt)
    return found


async def test_list_ps_and_show() -> None:
    async with gateway(models=[KNOWN]) as running, client(running) as api:
        listed = await api.list()
        assert (await api.ps()).models == []
        running.owner.load(KNOWN)
        running.owner.infos["key-smol"] = ModelInfo(n_ctx_slot=2048)
        loaded = await api.ps()
        shown = await api.show("smol")
        assert running.owner.works == []
    (model,) = listed.models
    assert model.model == "smol:latest"
    assert model.size == 98_765_432
    assert model.details is not None
    assert (model.details.parameter_size, model.details.quantization_level) == ("134.52M", "Q4_1")
    assert loaded.models[0].context_length == 2048
    assert shown.capabilities == ["completion", "tools"]
    assert shown.modelinfo is not None
    assert shown.modelinfo["llama.block_count"] == 30


async def test_chat() -> None:
    async with gateway() as running, client(running) as api:
        answer = await api.chat("smol", HI, options={"num_predict": 5, "seed": 3, "stop": ["END"]})
        assert answer.message.content == "Hello world"
        assert answer.done_reason == "stop"
        assert (answer.prompt_eval_count, answer.eval_count) == (7, 2)
        assert answer.eval_duration == 20_000_000
        assert (work(running).max_tokens, work(running).sampling.seed, work(running).stop) == (5, 3, ("END",))


async def test_streamed_chat_is_lines_of_json() -> None:
    async with gateway() as running, client(running) as api, running.client() as http:
        parts = [part async for part in await api.chat("smol", HI, stream=True)]
        raw = await http.post("/api/chat", json={"model": "smol:latest", "messages": HI})
    assert "".join(part.message.content or "" for part in parts) == "Hello world"
    assert [part.done for part in parts] == [False, False, True]
    assert raw.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in raw.text.splitlines()]
    assert lines[0]["message"] == {"role": "assistant", "content": "Hello"}
    assert lines[0]["model"] == "smol:latest"
    assert lines[-1]["done"] is True


async def test_tool_calls_come_whole() -> None:
    tools: Any = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object"}}}]
    history: Any = [
        *HI,
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "now", "arguments": {"a": 1}}}]},
        {"role": "tool", "content": "noon", "tool_name": "now"},
    ]
    async with gateway(play=tool_call("now", '{"zone": "UTC"}')) as running, client(running) as api:
        plain = await api.chat("smol", history, tools=tools)
        parts = [part async for part in await api.chat("smol", HI, tools=tools, stream=True)]
        asked = running.owner.works[0].prompt  # type: ignore[union-attr]
    assert plain.message.tool_calls is not None
    assert plain.message.tool_calls[0].function.arguments == {"zone": "UTC"}
    assert parts[0].message.tool_calls is not None
    assert parts[-1].done is True
    assert isinstance(asked, ChatPrompt)
    assert json.loads(asked.messages[1].tool_calls[0].arguments) == {"a": 1}
    assert asked.messages[2] == ChatMessage("tool", "noon", name="now")


async def test_thinking_format_and_images() -> None:
    async with gateway(play=rich(DeltaExtra(reasoning="hm"), text="{}")) as running, client(running) as api:
        messages: Any = [{"role": "user", "content": "x", "images": ["aGVsbG8="]}]
        answer = await api.chat("smol", messages, think=True, format={"type": "object"})
        assert answer.message.thinking == "hm"
        assert prompt(running).enable_thinking is True
        assert prompt(running).messages[0].content[1] == ImagePart(b"hello", "messages[0].images[0]")  # type: ignore[index]
        assert work(running).sampling.constraint == JsonSchema(b'{"type":"object"}')
        await api.chat("smol", HI, format="json")
        assert work(running).sampling.constraint == JsonSchema(b"{}")


async def test_generate_goes_through_the_template_unless_it_is_raw() -> None:
    async with gateway() as running, client(running) as api:
        answer = await api.generate("smol", "hi", system="be brief")
        assert answer.response == "Hello world"
        assert prompt(running).messages == (ChatMessage("system", "be brief"), ChatMessage("user", "hi"))
        await api.generate("smol", "hi", raw=True)
        assert work(running).prompt == TextPrompt("hi")
        await api.generate("smol", "def f(", suffix="return")
        assert work(running).prompt == InfillPrompt("def f(", "return")
        parts = [part async for part in await api.generate("smol", "hi", stream=True)]
        assert "".join(part.response for part in parts) == "Hello world"


async def test_nothing_to_say_loads_or_unloads() -> None:
    async with gateway() as running, client(running) as api:
        assert (await api.generate("smol", "")).done_reason == "load"
        assert (await api.chat("smol", [], keep_alive=0)).done_reason == "unload"
        assert running.owner.events == [LoadAsked("key-smol", name="smol"), UnloadAsked("key-smol", name="smol")]
        assert running.owner.works == []


async def test_embeddings() -> None:
    async with gateway(play=answers) as running, client(running) as api:
        many = await api.embed("smol", ["a", "b"])
        one = await api.embeddings("smol", "a")
    assert many.embeddings == [[1.0, -0.5], [1.0, -0.5]]
    assert many.prompt_eval_count == 6
    assert one.embedding == [1.0, -0.5]


def test_copies_outlive_the_gateway(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    copies = Copies(state.copies(), state.save_copies)
    copies.add("mine", "smol")
    copies.add("other", "smol")
    assert copies.drop("other")
    assert not copies.drop("other")
    again = Copies(StateFolder(tmp_path).copies())
    assert again.resolve("mine") == "smol"
    assert list(again.items()) == [("mine", "smol")]


async def test_copy_is_one_more_name_until_it_is_deleted() -> None:
    async with gateway() as running, client(running) as api:
        await api.copy("smol", "mine")
        assert (await api.chat("mine", HI)).message.content == "Hello world"
        assert "mine:latest" in [model.model for model in (await api.list()).models]
        with pytest.raises(ollama.ResponseError, match="already"):
            await api.copy("smol", "mine")
        await api.delete("mine")
        with pytest.raises(ollama.ResponseError, match="not found") as caught:
            await api.chat("mine", HI)
        assert caught.value.status_code == 404


async def test_what_is_there_is_pulled_at_once() -> None:
    async with gateway() as running, client(running) as api:
        parts = [part async for part in await api.pull("smol", stream=True)]
        assert parts[-1].status == "success"
        assert (await api.pull("smol")).status == "success"


async def test_context_never_reloads() -> None:
    async with gateway(models=[KNOWN]) as running, client(running) as api:
        await api.chat("smol", HI, options={"num_ctx": 2048, "num_gpu": 99})
        with pytest.raises(ollama.ResponseError, match="2048 tokens, not 4096"):
            await api.chat("smol", HI, options={"num_ctx": 4096})


async def test_errors_have_ollamas_shape() -> None:
    async with (
        gateway(play=fail(WireError(ErrorKind.OVERLOADED, "server busy"))) as running,
        running.client() as http,
    ):
        for path in ("/api/chat", "/api/nothing"):
            answer = await http.post(f"{running.url}{path}", json={"model": "smol", "messages": HI})
            assert isinstance(answer.json()["error"], str)
        bad = await http.post("/api/chat", json={"model": "smol", "messages": [{"role": 5}]})
    assert bad.status_code == 400
    assert bad.json()["error"].startswith("messages[0].role: ")


async def test_failure_half_way_is_a_line() -> None:
    def half(_: Any, stream: RequestStream) -> None:
        stream.delta(Delta(1, "Hel"))

    async with gateway(play=half) as running, running.client() as http:
        body = {"model": "smol", "messages": HI}
        async with http.stream("POST", "/api/chat", json=body) as answer:
            running.owner.streams[1].fail(WireError(ErrorKind.WORKER_DIED, "it died"))
            text = (await answer.aread()).decode()
    assert json.loads(text.splitlines()[-1]) == {"error": "it died"}


async def test_root_greets_programs_and_shows_browsers_the_dashboard() -> None:
    async with gateway() as running, running.client() as http:
        assert (await http.get("/")).text == "Ollama is running"
        assert (await http.head("/")).status_code == 200
        assert "<html" in (await http.get("/", headers={"Accept": "text/html,*/*"})).text


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (0.0, 0.0),
        (-1.0, -1.0),
        ("5m", 300.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        ("-1m", -60.0),
        ("30", 30.0),
        ("0", 0.0),
    ],
)
def test_keep_alive(value: Any, seconds: float | None) -> None:
    assert keep_alive(value) == seconds


@pytest.mark.parametrize("value", ["soon", "5x", "m", ""])
def test_bad_keep_alive(value: str) -> None:
    with pytest.raises(ApiError):
        keep_alive(value)

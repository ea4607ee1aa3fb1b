"""Models as they are listed, loaded, followed and explained."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import openai
import pytest

from protocol.load import ModelInfo
from protocol.status import MemoryUse, SlotStatus, UpdateStatus, WorkerState
from router.scheduling.events import ExitReason, ExitReport, LoadAsked, PinAsked, UnloadAsked
from router.scheduling.states import State
from router.scheduling.views import Decision, ModelView, QueuedModel, WaitingView
from tests.router.http.gateway import SMOL, Running, gateway


async def get(running: Running, path: str, **options: Any) -> httpx.Response:
    async with running.client() as http:
        return await http.get(path, **options)


async def post(running: Running, path: str, body: object) -> httpx.Response:
    async with running.client() as http:
        return await http.post(path, json=body)


async def test_list_has_llama_servers_shape_and_more() -> None:
    async with gateway(listen=False) as running:
        running.owner.load(SMOL)
        running.owner.infos["key-smol"] = ModelInfo(n_ctx_slot=2048, n_params=5, input_modalities=("text", "image"))
        running.owner.reports["key-smol"] = UpdateStatus(
            1,
            WorkerState.READY,
            slots=(SlotStatus(0, "decode", 1), SlotStatus(1, "idle")),
            memory=MemoryUse(resident=9, anonymous=4),
        )
        running.services.speed = {"key-smol": 15.0}.__getitem__
        value = (await get(running, "/models")).json()
    assert value["object"] == "list"
    assert [entry["id"] for entry in value["data"]] == ["broken", "smol", "user/repo:Q4_0"]
    broken, smol, other = value["data"]
    assert broken["status"]["failed"] is True
    assert broken["status"]["reason"] == "'broken.gguf' is not a GGUF file"
    assert smol["status"]["value"] == "loaded"
    assert smol["aliases"] == ["tiny"]
    assert smol["meta"]["n_ctx"] == 2048
    assert smol["architecture"]["input_modalities"] == ["text", "image"]
    assert smol["slots"] == {"total": 2, "busy": 1}
    assert smol["tokens_per_second"] == 15.0
    assert smol["memory"]["resident"] == 9
    assert other["status"]["value"] == "unloaded"
    assert other["can_remove"] is True
    assert "models" not in value


async def test_status_says_why_a_model_does_not_run_and_how_far_a_load_is() -> None:
    exit = ExitReport(ExitReason.OUT_OF_MEMORY, -9, "killed by signal 9, for lack of memory")
    async with gateway(listen=False) as running:
        names = SMOL.names
        failed = ModelView("key-smol", names, State.FAILED, "unloaded", "crashed", 0.0, failed=True, exit=exit)
        running.owner.views["key-smol"] = failed
        first = (await get(running, "/v1/models/smol")).json()["status"]
        loading = ModelView("key-smol", names, State.LOADING, "loading", "", 0.0, progress=0.4, stage="text_model")
        running.owner.views["key-smol"] = loading
        second = (await get(running, "/v1/models/tiny")).json()["status"]
    assert (first["value"], first["failed"], first["exit_code"]) == ("unloaded", True, -9)
    assert first["reason"] == "killed by signal 9, for lack of memory"
    assert (second["value"], second["progress"], second["stage"]) == ("loading", 0.4, "text_model")


async def test_sdk_lists_and_retrieves() -> None:
    async with gateway() as running, openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="x") as sdk:
        listed = [model.id async for model in sdk.models.list()]
        one = await sdk.models.retrieve("user/repo:Q4_0")
        with pytest.raises(openai.NotFoundError):
            await sdk.models.retrieve("nope")
    assert "smol" in listed
    assert one.id == "user/repo:Q4_0"


async def test_single_model_answers_to_any_name() -> None:
    async with gateway(listen=False, models=[SMOL], single="smol") as running:
        value = (await get(running, "/v1/models")).json()
        chat = {"messages": [{"role": "user", "content": "hi"}]}
        named = await post(running, "/v1/chat/completions", {**chat, "model": "gpt-4"})
        unnamed = await post(running, "/v1/chat/completions", chat)
        props = (await get(running, "/props")).json()
    assert value["models"][0]["model"] == "smol"
    assert named.json()["model"] == unnamed.json()["model"] == "smol"
    assert props["model_alias"] == "smol"


async def test_default_model() -> None:
    async with gateway(listen=False, default="smol") as running:
        answer = await post(running, "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
    assert answer.json()["model"] == "smol"


async def test_load_unload_and_pin() -> None:
    async with gateway(listen=False) as running:
        assert (await post(running, "/models/unload", {"model": "smol"})).status_code == 400
        assert (await post(running, "/models/load", {"model": "tiny"})).json() == {"success": True}
        running.owner.load(SMOL)
        again = await post(running, "/models/load", {"model": "smol"})
        await post(running, "/models/pin", {"model": "smol"})
        await post(running, "/models/pin", {"model": "smol", "pin": False})
        await post(running, "/models/unpin", {"model": "smol"})
        await post(running, "/models/unload", {"model": "smol", "force": True})
        events = running.owner.events
    assert again.status_code == 400
    assert again.json()["error"]["message"] == "model is already running"
    assert events == [
        LoadAsked("key-smol", name="smol"),
        LoadAsked("key-smol", name="smol"),
        PinAsked("key-smol", True),
        PinAsked("key-smol", False),
        PinAsked("key-smol", False),
        UnloadAsked("key-smol", name="smol", force=True),
    ]


@pytest.mark.parametrize("path", ["/models/load", "/models/unload", "/models/pin"])
@pytest.mark.parametrize(("body", "status"), [({}, 400), ({"model": 5}, 400), ({"model": "nope"}, 404)])
async def test_bad_management(path: str, body: object, status: int) -> None:
    async with gateway(listen=False) as running:
        answer = await post(running, path, body)
        assert running.owner.events == []
    assert answer.status_code == status


async def test_model_that_cannot_load_says_so() -> None:
    async with gateway(listen=False) as running:
        answer = await post(running, "/models/load", {"model": "broken"})
    assert answer.status_code == 503
    assert "is not a GGUF file" in answer.json()["error"]["message"]


async def test_queue_explains() -> None:
    async with gateway(listen=False) as running:
        running.owner.waits = [WaitingView(7, "key-smol", 1, 2.5, blocked="user/repo:Q4_0 is busy")]
        running.owner.queued = [QueuedModel("key-smol", 1, 2.5, 1, 0, "no room")]
        running.owner.decided = [Decision(0.0, "key-other", "evict", "for smol")]
        value = (await get(running, "/queue")).json()
    assert value["waiting"][0]["model"] == "smol"
    assert value["waiting"][0]["reason"] == "user/repo:Q4_0 is busy"
    assert value["models"][0]["reason"] == "no room"
    assert value["decisions"][0]["model"] == "user/repo:Q4_0"


async def events(answer: httpx.Response) -> AsyncIterator[tuple[int, Any]]:
    number = 0
    async for line in answer.aiter_lines():
        if line.startswith("id: "):
            number = int(line.removeprefix("id: "))
        elif line.startswith("data: "):
            yield number, json.loads(line.removeprefix("data: "))


async def test_events_begin_with_a_snapshot_and_can_be_taken_up_again() -> None:
    async with gateway() as running, running.client() as http:
        loading = ModelView("key-smol", SMOL.names, State.LOADING, "loading", "", 0.0, progress=0.5, stage="text_model")
        loaded = msgspec.structs.replace(loading, state=State.READY, status="loaded")
        async with http.stream("GET", "/models/sse") as answer:
            following = events(answer)
            first_id, snapshot = await anext(following)
            running.owner.news.publish("key-smol", "status_change", loading)
            second_id, change = await anext(following)
        running.owner.news.publish("key-smol", "status_change", loaded, ModelInfo(n_ctx_slot=7))
        running.owner.news.publish("key-smol", "model_remove")
        headers = {"Last-Event-ID": str(second_id)}
        async with http.stream("GET", "/models/sse", headers=headers) as answer:
            following = events(answer)
            _, ready = await anext(following)
            _, removed = await anext(following)
        async with http.stream("GET", "/models/sse", headers={"Last-Event-ID": "1"}) as answer:
            _, again = await anext(events(answer))
    assert snapshot["event"] == "snapshot"
    assert [entry["id"] for entry in snapshot["data"]["models"]] == ["broken", "smol", "user/repo:Q4_0"]
    assert second_id == first_id + 1
    assert change == {
        "model": "smol",
        "event": "status_change",
        "data": {
            "status": "loading",
            "progress": {"stages": ["text_model"], "current": "text_model", "value": 0.5},
        },
    }
    assert ready["data"]["info"]["meta"]["n_ctx"] == 7
    assert removed == {"model": "smol", "event": "model_remove"}
    assert again["event"] == "snapshot"


async def test_events_end_when_the_gateway_stops() -> None:
    async with (
        gateway() as running,
        running.client() as http,
        http.stream("GET", "/models/sse") as answer,
    ):
        running.services.close_streams()
        text = (await answer.aread()).decode()
    assert '"event":"server_stopping"' in text or '"event":"snapshot"' in text


async def test_description_names_every_route_and_the_shapes_of_bodies() -> None:
    async with gateway(listen=False) as running:
        value = (await get(running, "/openapi.json")).json()
    chat = value["paths"]["/v1/chat/completions"]["post"]
    reference = chat["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    schema = value["components"]["schemas"][reference.rpartition("/")[2]]
    assert "messages" in schema["properties"]
    assert chat["x-scope"] == "infer"
    assert "security" not in value["paths"]["/health"]["get"]
    assert value["paths"]["/v1/models/{id}"]["get"]["parameters"][0]["name"] == "id"

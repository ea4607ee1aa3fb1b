"""llama-server's own endpoints."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import msgspec
import pytest

from protocol.chat import InfillPrompt, MixedPrompt, TextPrompt
from protocol.codec import Work
from protocol.embed import Embed, Embedded, Rerank, Reranked
from protocol.generate import DeltaExtra, Generate, PromptProgress
from protocol.load import AdapterSpec, ModelInfo
from protocol.slots import AdapterInfo, Adapters, ListAdapters, SetAdapters, SlotAction, SlotActionDone
from protocol.status import SlotStatus, UpdateStatus, WorkerState
from protocol.text import (
    ApplyTemplate,
    CountTokens,
    Detokenize,
    Detokenized,
    TemplateApplied,
    Tokenize,
    Tokenized,
    TokensCounted,
)
from router.transport.stream import RequestStream
from tests.eventually import eventually_async
from tests.router.http.gateway import SMOL, Running, gateway, rich, say, silence


def answers(work: Work, stream: RequestStream) -> None:
    """Answer everything but generations with something that can be told apart."""
    request = work.request
    match work:
        case Tokenize():
            pieces = (b"he", b"\xff") if work.with_pieces else ()
            stream.answer(Tokenized(request, (5, 6), pieces))
        case Detokenize():
            stream.answer(Detokenized(request, "text of " + " ".join(map(str, work.tokens))))
        case ApplyTemplate():
            stream.answer(TemplateApplied(request, "<prompt>"))
        case CountTokens():
            stream.answer(TokensCounted(request, 11))
        case Embed():
            vector = b"\x00\x00\x80\x3f\x00\x00\x00\xbf"  # 1.0, -0.5
            stream.answer(Embedded(request, tuple((vector,) for _ in work.inputs), tuple(3 for _ in work.inputs)))
        case Rerank():
            scores = tuple(float(index == 1) for index, _ in enumerate(work.documents))
            stream.answer(Reranked(request, scores, 9))
        case SlotAction():
            stream.answer(SlotActionDone(request, 12, 345, 6.5))
        case ListAdapters() | SetAdapters():
            stream.answer(Adapters(request, (AdapterInfo(0, "/a.gguf", 0.5),)))
        case Generate():
            say("Hello", " world")(work, stream)


async def post(running: Running, path: str, body: object, **options: Any) -> httpx.Response:
    async with running.client() as client:
        return await client.post(path, json=body, **options)


async def get(running: Running, path: str, **options: Any) -> httpx.Response:
    async with running.client() as client:
        return await client.get(path, **options)


async def test_completion() -> None:
    async with gateway(listen=False, play=say("Paris", ".\n", stop="word", word="END")) as running:
        body = {"prompt": "France", "n_predict": 8, "stop": ["END"], "model": "smol", "temperature": 0}
        value = (await post(running, "/completion", body)).json()
    assert value["content"] == "Paris.\n"
    assert value["stop"] is True
    assert (value["stop_type"], value["stopping_word"]) == ("word", "END")
    assert value["has_new_line"] is True
    assert value["tokens_predicted"] == 2
    assert value["tokens_evaluated"] == 7
    assert value["generation_settings"]["n_predict"] == 8
    assert value["generation_settings"]["temperature"] == 0
    assert value["model"] == "smol"


async def test_streamed_completion_ends_without_done() -> None:
    play = rich(DeltaExtra(progress=PromptProgress(9, 1, 4, 2.0)), DeltaExtra(tokens=(7,)), text="Paris")
    async with gateway(listen=False, play=play) as running:
        text = (await post(running, "/completions", {"prompt": "x", "model": "smol", "stream": True})).text
    *chunks, last = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line]
    assert chunks[0]["prompt_progress"] == {"total": 9, "cache": 1, "processed": 4, "time_ms": 2.0}
    assert chunks[1]["tokens"] == [7]
    assert "".join(chunk["content"] for chunk in chunks) == "Paris"
    assert last["stop"] is True
    assert last["content"] == ""


async def test_several_prompts_make_an_array() -> None:
    async with gateway(listen=False) as running:
        value = (await post(running, "/completion", {"prompt": ["a", [1, 2], ["b", 3]], "model": "smol"})).json()
    assert [entry["index"] for entry in value] == [0, 1, 2]
    assert {entry["content"] for entry in value} == {"Hello world"}
    assert [work.prompt for work in running.owner.works if isinstance(work, Generate)] == [
        TextPrompt("a"),
        MixedPrompt(((1, 2),)),
        MixedPrompt(("b", (3,))),
    ]


async def test_response_fields_pick_and_unnest() -> None:
    async with gateway(listen=False) as running:
        body = {"prompt": "a", "model": "smol", "response_fields": ["content", "timings/prompt_n", "nope"]}
        value = (await post(running, "/completion", body)).json()
    assert value == {"content": "Hello world", "prompt_n": 4}


async def test_openai_completions_of_several_prompts() -> None:
    async with gateway(listen=False) as running:
        body = {"prompt": ["a", "b"], "n": 2, "model": "smol", "logprobs": 0}
        value = (await post(running, "/v1/completions", body)).json()
    assert [choice["index"] for choice in value["choices"]] == [0, 1, 2, 3]
    assert value["usage"]["prompt_tokens"] == 14
    assert value["usage"]["completion_tokens"] == 8
    assert all(isinstance(work, Generate) and work.sampling.n_probs == 1 for work in running.owner.works)


async def test_streamed_completions_of_several_prompts_end_once() -> None:
    async with gateway(listen=False) as running:
        body = {"prompt": ["a", "b"], "model": "smol", "stream": True}
        text = (await post(running, "/v1/completions", body)).text
    assert text.count("[DONE]") == 1
    assert text.count('"finish_reason":"stop"') == 2


async def test_infill() -> None:
    async with gateway(listen=False) as running:
        body = {
            "input_prefix": "def f(",
            "input_suffix": "return",
            "input_extra": [{"filename": "a.py", "text": "x"}],
            "model": "smol",
        }
        assert (await post(running, "/infill", body)).json()["content"] == "Hello world"
        bad = await post(running, "/infill", {"input_prefix": "a", "model": "smol"})
    assert running.owner.works[0].prompt == InfillPrompt("def f(", "return", "", (("a.py", "x"),))  # type: ignore[union-attr]
    assert bad.status_code == 400


async def test_text_helpers() -> None:
    messages = [{"role": "user", "content": "hi"}]
    async with gateway(listen=False, play=answers) as running:
        tokens = await post(running, "/tokenize", {"content": "hello", "model": "smol", "add_special": True})
        pieces = await post(running, "/tokenize", {"content": "hello", "model": "smol", "with_pieces": True})
        text = await post(running, "/detokenize", {"tokens": [5, 6], "model": "smol"})
        prompt = await post(running, "/apply-template", {"messages": messages, "model": "smol"})
    assert tokens.json() == {"tokens": [5, 6]}
    assert pieces.json() == {"tokens": [{"id": 5, "piece": "he"}, {"id": 6, "piece": [255]}]}
    assert text.json() == {"content": "text of 5 6"}
    assert prompt.json() == {"prompt": "<prompt>"}
    assert [arrived.needs_weights for arrived in running.owner.arrivals] == [False] * 4
    assert isinstance(running.owner.works[0], Tokenize)
    assert running.owner.works[0].add_special is True


async def test_embeddings_in_both_shapes() -> None:
    async with gateway(listen=False, play=answers) as running:
        openai = (await post(running, "/v1/embeddings", {"input": ["a", "b"], "model": "smol"})).json()
        packed = {"input": "a", "model": "smol", "encoding_format": "base64"}
        base64 = (await post(running, "/v1/embeddings", packed)).json()
        native = (await post(running, "/embedding", {"content": "a", "model": "smol", "embd_normalize": -1})).json()
    assert openai["data"] == [
        {"object": "embedding", "index": 0, "embedding": [1.0, -0.5]},
        {"object": "embedding", "index": 1, "embedding": [1.0, -0.5]},
    ]
    assert openai["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    assert base64["data"][0]["embedding"] == "AACAPwAAAL8="
    assert native == [{"index": 0, "embedding": [[1.0, -0.5]]}]
    assert running.owner.works[2].normalize == -1  # type: ignore[union-attr]


async def test_rerank_in_both_shapes() -> None:
    async with gateway(listen=False, play=answers) as running:
        jina = {"query": "q", "documents": ["a", {"text": "b"}, "c"], "top_n": 2, "model": "smol"}
        tei = {"query": "q", "texts": ["a", "b"], "return_text": True, "model": "smol"}
        first = (await post(running, "/v1/rerank", jina)).json()
        second = (await post(running, "/rerank", tei)).json()
    assert first["results"] == [{"index": 1, "relevance_score": 1.0}, {"index": 0, "relevance_score": 0.0}]
    assert first["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
    assert second == [{"index": 1, "score": 1.0, "text": "b"}, {"index": 0, "score": 0.0, "text": "a"}]


@pytest.mark.parametrize(
    "body",
    [
        {"documents": ["a"], "model": "smol"},
        {"query": "q", "model": "smol"},
        {"query": "q", "documents": [], "model": "smol"},
        {"query": "q", "documents": [5], "model": "smol"},
    ],
)
async def test_bad_rerank(body: object) -> None:
    async with gateway(listen=False, play=answers) as running:
        assert (await post(running, "/rerank", body)).status_code == 400


async def test_props_of_the_router_and_of_a_model() -> None:
    async with gateway(listen=False) as running:
        running.owner.infos["key-smol"] = ModelInfo(n_ctx_slot=2048, chat_template="{{x}}", bos_token="<s>")
        router = (await get(running, "/props")).json()
        model = (await get(running, "/props", params={"model": "tiny"})).json()
        changed = await post(running, "/props", {})
        assert running.owner.works == []
    assert router["role"] == "router"
    assert model["default_generation_settings"]["n_ctx"] == 2048
    assert model["total_slots"] == 4
    assert model["chat_template"] == "{{x}}"
    assert changed.status_code == 501


async def test_slots_come_from_the_last_report() -> None:
    slots = (SlotStatus(0, "idle"), SlotStatus(1, "decode", 7, 10, 4, 10, 3, 20))
    async with gateway(listen=False) as running:
        running.owner.reports["key-smol"] = UpdateStatus(1, WorkerState.READY, slots=slots)
        value = (await get(running, "/slots", params={"model": "smol"})).json()
        busy = (SlotStatus(0, "prefill", 1),)
        running.owner.reports["key-smol"] = UpdateStatus(2, WorkerState.READY, slots=busy)
        full = await get(running, "/slots", params={"model": "smol", "fail_on_no_slot": "1"})
        assert running.owner.works == []
    assert [slot["is_processing"] for slot in value] == [False, True]
    assert value[1]["n_prompt_tokens"] == 10
    assert value[1]["next_token"][0]["n_remain"] == 17
    assert full.status_code == 503


async def test_slot_actions() -> None:
    async with gateway(listen=False, play=answers) as running:
        body = {"filename": "a.bin", "model": "smol"}
        saved = (await post(running, "/slots/1?action=save", body)).json()
        restored = (await post(running, "/slots/1?action=restore", body)).json()
        erased = (await post(running, "/slots/1?action=erase&model=smol", {})).json()
    assert saved == {
        "id_slot": 1,
        "filename": "a.bin",
        "n_saved": 12,
        "n_written": 345,
        "timings": {"save_ms": 6.5},
    }
    assert restored["n_restored"] == 12
    assert erased == {"id_slot": 1, "n_erased": 12}


@pytest.mark.parametrize(
    ("path", "filename"),
    [
        ("/slots/x?action=save", "a"),
        ("/slots/1?action=burn", "a"),
        ("/slots/1?action=save", ""),
        ("/slots/1?action=save", "../a"),
        ("/slots/1?action=save", ".."),
        ("/slots/1?action=restore", "a\0b"),
    ],
)
async def test_bad_slot_actions(path: str, filename: str) -> None:
    async with gateway(listen=False, play=answers) as running:
        answer = await post(running, path, {"filename": filename, "model": "smol"})
        assert running.owner.works == []
    assert answer.status_code == 400


async def test_adapters() -> None:
    assert SMOL.parameters is not None
    parameters = msgspec.structs.replace(SMOL.parameters, adapters=(AdapterSpec("/a.gguf"),))
    tuned = msgspec.structs.replace(SMOL, parameters=parameters)
    async with gateway(listen=False, play=answers, models=[SMOL]) as running:
        running.owner.load(SMOL)
        assert (await get(running, "/lora-adapters", params={"model": "smol"})).json() == []
        assert running.owner.works == []
    async with gateway(listen=False, play=answers, models=[tuned]) as running:
        unloaded = await get(running, "/lora-adapters", params={"model": "smol"})
        assert running.owner.works == []
        running.owner.load(tuned)
        listed = await get(running, "/lora-adapters", params={"model": "smol"})
        changed = await post(running, "/lora-adapters?model=smol", [{"id": 0, "scale": 0.25}])
    assert unloaded.json()[0]["scale"] == 1.0
    assert listed.json() == [{"id": 0, "path": "/a.gguf", "scale": 0.5, "task_name": "", "prompt_prefix": ""}]
    assert changed.json() == {"success": True}
    assert running.owner.works[1].scales[0].scale == 0.25  # type: ignore[union-attr]


async def test_reasoning_can_be_ended() -> None:
    async with gateway(listen=False, play=silence) as running:
        body = {"messages": [{"role": "user", "content": "x"}], "model": "smol"}
        asking = asyncio.create_task(post(running, "/v1/chat/completions", body))
        await eventually_async(lambda: running.owner.works, 5, "the request arrives")
        id = running.services.inference.tickets()[0].id
        path = "/v1/chat/completions/control"
        ended = (await post(running, path, {"id": id, "action": "reasoning_end"})).json()
        unknown = (await post(running, path, {"id": "nope", "action": "reasoning_end"})).json()
        bad = await post(running, path, {"id": id, "action": "burn"})
        asking.cancel()
    assert ended == {"success": True}
    assert running.owner.reasoning_ended == [1]
    assert unknown["success"] is False
    assert bad.status_code == 400

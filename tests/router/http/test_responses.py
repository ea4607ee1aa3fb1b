"""The Responses API with the OpenAI SDK."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pydantic
import pytest

from protocol.chat import ChatMessage, ChatPrompt, ToolCall
from protocol.errors import ErrorKind, WireError
from protocol.generate import Delta, DeltaExtra, Generate, ToolCallDelta
from protocol.sampling import JsonSchema
from router.http.responses_store import ResponseStore
from tests.eventually import eventually_async
from tests.router.http.gateway import Running, fail, gateway, rich, say, silence, tool_call

TOOL: Any = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}}


def client(running: Running) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)


def prompt(running: Running, index: int = -1) -> ChatPrompt:
    work = running.owner.works[index]
    assert isinstance(work, Generate)
    assert isinstance(work.prompt, ChatPrompt)
    return work.prompt


async def test_plain_response() -> None:
    async with gateway() as running, client(running) as sdk:
        answer = await sdk.responses.create(model="smol", input="hi", instructions="be brief", max_output_tokens=9)
    assert answer.output_text == "Hello world"
    assert answer.status == "completed"
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.input_tokens_details.cached_tokens) == (7, 3)
    assert prompt(running).messages == (ChatMessage("system", "be brief"), ChatMessage("user", "hi"))
    assert running.owner.works[0].max_tokens == 9  # type: ignore[union-attr]


async def test_cut_response_is_incomplete() -> None:
    async with gateway(play=say("Hel", stop="limit")) as running, client(running) as sdk:
        answer = await sdk.responses.create(model="smol", input="hi")
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


async def test_events_come_in_order_and_are_numbered() -> None:
    call = ToolCallDelta(0, "call_7", "now", '{"a":')
    play = rich(
        DeltaExtra(reasoning="hm"),
        DeltaExtra(tool_calls=(call,)),
        DeltaExtra(tool_calls=(ToolCallDelta(0, arguments="1}"),)),
        text="ok",
        stop="tool_calls",
    )
    async with gateway(play=play) as running, client(running) as sdk:
        stream = await sdk.responses.create(model="smol", input="hi", stream=True, tools=[TOOL])
        events: list[Any] = [event async for event in stream]
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(20))
    output = events[-1].response.output
    assert [item.type for item in output] == ["reasoning", "function_call", "message"]
    assert (output[1].call_id, output[1].name, output[1].arguments) == ("call_7", "now", '{"a":1}')
    assert [events[index].output_index for index in (2, 8, 13)] == [0, 1, 2]
    assert events[9].item_id == output[1].id


async def test_stream_without_any_text_still_has_a_message() -> None:
    async with gateway(play=say()) as running, client(running) as sdk:
        stream = await sdk.responses.create(model="smol", input="hi", stream=True)
        events: list[Any] = [event async for event in stream]
    assert events[-1].response.output[0].content[0].text == ""


async def test_conversation_goes_on_from_a_response() -> None:
    async with gateway(play=tool_call("now", "{}")) as running, client(running) as sdk:
        first = await sdk.responses.create(model="smol", input="what time is it?", tools=[TOOL])
        running.owner.play = say("noon")
        second = await sdk.responses.create(
            model="smol",
            previous_response_id=first.id,
            input=[{"type": "function_call_output", "call_id": "call_1", "output": "12:00"}],
        )
        await sdk.responses.create(model="smol", previous_response_id=second.id, input="thanks")
    assert prompt(running).messages == (
        ChatMessage("user", "what time is it?"),
        ChatMessage("assistant", None, tool_calls=(ToolCall("now", "{}", "call_1"),)),
        ChatMessage("tool", "12:00", tool_call_id="call_1"),
        ChatMessage("assistant", "noon"),
        ChatMessage("user", "thanks"),
    )


async def test_history_may_come_as_items() -> None:
    items: Any = [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b", "annotations": []}]},
        {"type": "function_call", "call_id": "c", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "noon"},
    ]
    async with gateway() as running, client(running) as sdk:
        await sdk.responses.create(model="smol", input=items)
    assert prompt(running).messages == (
        ChatMessage("user", "a"),
        ChatMessage("assistant", "b", reasoning_content="hm", tool_calls=(ToolCall("now", "{}", "c"),)),
        ChatMessage("tool", "noon", tool_call_id="c"),
    )


async def test_structured_output_by_parse() -> None:
    class Place(pydantic.BaseModel):
        city: str

    async with gateway(play=say('{"city":', '"Paris"}')) as running, client(running) as sdk:
        answer = await sdk.responses.parse(model="smol", input="where?", text_format=Place)
    assert answer.output_parsed == Place(city="Paris")
    constraint = running.owner.works[0].sampling.constraint  # type: ignore[union-attr]
    assert isinstance(constraint, JsonSchema)
    assert json.loads(constraint.schema_json)["required"] == ["city"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"role": "user", "content": 5}]}, "input[0].content"),
        ({"input": [{"type": "web_search_call"}]}, "input[0].type"),
        ({"input": "a", "tool_choice": "required"}, "tool_choice"),
        ({"input": "a", "text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"input": "a", "previous_response_id": "resp_0"}, "previous_response_id"),
        ({"input": "a", "tools": [{"type": "web_search"}]}, "tools[0].type"),
    ],
)
async def test_bad_input(body: dict[str, Any], param: str) -> None:
    async with gateway() as running, running.client() as http:
        answer = await http.post("/v1/responses", json={"model": "smol", **body})
        assert running.owner.works == []
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


async def test_failures_are_raised() -> None:
    async with gateway(play=fail(WireError(ErrorKind.OVERLOADED, "full"))) as running, client(running) as sdk:
        with pytest.raises(openai.RateLimitError):
            await sdk.responses.create(model="smol", input="hi")


async def test_failure_half_way_is_an_error_event() -> None:
    async with gateway(play=silence) as running, client(running) as sdk:
        asking = asyncio.create_task(sdk.responses.create(model="smol", input="hi", stream=True))
        await eventually_async(lambda: running.owner.works, 5, "the request arrives")
        stream = running.owner.streams[1]
        stream.delta(Delta(1, "Hel"))
        answer = await asking
        stream.fail(WireError(ErrorKind.WORKER_DIED, "it died"))
        with pytest.raises(openai.APIError, match="it died"):
            async for _ in answer:
                pass


def test_store_forgets_what_was_used_least_recently() -> None:
    store = ResponseStore(capacity=300)
    for name in ("a", "b", "c"):
        store.put(name, "", (ChatMessage("user", name * 100),))
        store.history("a", "")
    assert len(store) == 2
    assert store.history("a", "")[0].content == "a" * 100
    with pytest.raises(Exception, match="not found"):
        store.history("b", "")
    with pytest.raises(Exception, match="not found"):
        store.history("a", "somebody else")


def test_store_does_not_take_what_is_too_large() -> None:
    store = ResponseStore(capacity=100)
    store.put("a", "", (ChatMessage("user", "x" * 1000),))
    assert len(store) == 0

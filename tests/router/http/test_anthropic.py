"""Anthropic's messages with its SDK."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest

from protocol.chat import ChatMessage, ChatPrompt, ImagePart, TextPart, ToolCall
from protocol.errors import ErrorKind, WireError
from protocol.generate import DeltaExtra, Generate, ToolCallDelta
from router.security.keys import KeySpec
from tests.router.http.gateway import Running, fail, gateway, rich, say, tool_call
from tests.router.http.test_native import answers

HI: Any = [{"role": "user", "content": "hi"}]
TOOL: Any = {"name": "now", "input_schema": {"type": "object", "properties": {}}}


def client(running: Running, key: str = "none") -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=running.url, api_key=key, max_retries=0)


def prompt(running: Running) -> ChatPrompt:
    work = running.owner.works[-1]
    assert isinstance(work, Generate)
    assert isinstance(work.prompt, ChatPrompt)
    return work.prompt


async def test_plain_message() -> None:
    async with gateway() as running, client(running) as sdk:
        message = await sdk.messages.create(model="tiny", max_tokens=9, messages=HI, system="be brief")
    assert message.content[0].text == "Hello world"  # type: ignore[union-attr]
    assert message.stop_reason == "end_turn"
    assert message.model == "smol"
    assert message._request_id == message.id
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens) == (4, 3, 2)
    assert prompt(running).messages == (ChatMessage("system", "be brief"), ChatMessage("user", "hi"))
    assert running.owner.works[0].max_tokens == 9  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("stop", "word", "reason", "sequence"),
    [
        ("limit", "", "max_tokens", None),
        ("word", "END", "stop_sequence", "END"),
        ("word", "<other>", "end_turn", None),
        ("eos", "", "end_turn", None),
    ],
)
async def test_stop_reasons(stop: str, word: str, reason: str, sequence: str | None) -> None:
    async with gateway(play=say("a", stop=stop, word=word)) as running, client(running) as sdk:
        message = await sdk.messages.create(model="smol", max_tokens=9, messages=HI, stop_sequences=["END"])
    assert (message.stop_reason, message.stop_sequence) == (reason, sequence)
    assert running.owner.works[0].stop == ("END",)  # type: ignore[union-attr]


async def test_stream_opens_fills_and_closes_each_block() -> None:
    play = rich(
        DeltaExtra(reasoning="hm"),
        DeltaExtra(tool_calls=(ToolCallDelta(0, "call_1", "now", '{"a":'),)),
        DeltaExtra(tool_calls=(ToolCallDelta(0, arguments="1}"),)),
        DeltaExtra(tool_calls=(ToolCallDelta(1, "call_2", "then", "{}"),)),
        stop="tool_calls",
    )
    async with gateway(play=play) as running, client(running) as sdk:
        stream = await sdk.messages.create(model="smol", max_tokens=9, messages=HI, tools=[TOOL], stream=True)
        kinds = [event.type async for event in stream]
        async with sdk.messages.stream(model="smol", max_tokens=9, messages=HI, tools=[TOOL]) as helper:
            message = await helper.get_final_message()
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    thinking, first, second = message.content
    assert thinking.thinking == "hm"  # type: ignore[union-attr]
    assert (first.id, first.name, first.input) == ("call_1", "now", {"a": 1})  # type: ignore[union-attr]
    assert (second.name, second.input) == ("then", {})  # type: ignore[union-attr]
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens == 4


async def test_text_stream_of_the_sdk() -> None:
    async with (
        gateway() as running,
        client(running) as sdk,
        sdk.messages.stream(model="smol", max_tokens=9, messages=HI) as stream,
    ):
        text = "".join([piece async for piece in stream.text_stream])
    assert text == "Hello world"


async def test_tool_loop() -> None:
    history: Any = [
        *HI,
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "wait"},
                {"type": "tool_use", "id": "t1", "name": "now", "input": {"zone": "UTC"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "noon"}]},
                {"type": "text", "text": "and?"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="},
                },
            ],
        },
    ]
    async with gateway(play=tool_call("now", '{"a": 1}')) as running, client(running) as sdk:
        message = await sdk.messages.create(
            model="smol", max_tokens=9, messages=history, tools=[TOOL], tool_choice={"type": "any"}
        )
    assert message.content[0].input == {"a": 1}  # type: ignore[union-attr]
    asked = prompt(running)
    assert asked.tool_choice == "required"
    assert asked.messages[1] == ChatMessage(
        "assistant", "wait", reasoning_content="hm", tool_calls=(ToolCall("now", '{"zone":"UTC"}', "t1"),)
    )
    assert asked.messages[2] == ChatMessage("tool", "noon", tool_call_id="t1")
    assert asked.messages[3].content == (TextPart("and?"), ImagePart(b"hello", "messages[2].content[2].source"))


async def test_thinking_is_switched() -> None:
    async with gateway() as running, client(running) as sdk:
        on: Any = {"type": "enabled", "budget_tokens": 1024}
        await sdk.messages.create(model="smol", max_tokens=9000, messages=HI, thinking=on)
        asked = prompt(running)
        await sdk.messages.create(model="smol", max_tokens=9, messages=HI, thinking={"type": "disabled"})
    assert (asked.enable_thinking, asked.reasoning_budget) == (True, 1024)
    assert prompt(running).enable_thinking is False


async def test_beginning_of_the_answer_may_be_given() -> None:
    async with gateway() as running, client(running) as sdk:
        messages: Any = [*HI, {"role": "assistant", "content": "I say"}]
        await sdk.messages.create(model="smol", max_tokens=9, messages=messages)
    assert prompt(running).continue_final_message is True
    assert prompt(running).add_generation_prompt is False


async def test_tokens_are_counted() -> None:
    async with gateway(play=answers) as running, client(running) as sdk:
        count = await sdk.messages.count_tokens(model="smol", messages=HI, tools=[TOOL])
    assert count.input_tokens == 11


@pytest.mark.parametrize(
    ("kind", "raised", "name"),
    [
        (ErrorKind.INVALID_REQUEST, anthropic.BadRequestError, "invalid_request_error"),
        (ErrorKind.OVERLOADED, anthropic.RateLimitError, "rate_limit_error"),
        (ErrorKind.INTERNAL, anthropic.InternalServerError, "api_error"),
        (ErrorKind.UNAVAILABLE, anthropic.InternalServerError, "overloaded_error"),
    ],
)
async def test_errors_have_anthropics_shape(kind: ErrorKind, raised: type[anthropic.APIStatusError], name: str) -> None:
    async with gateway(play=fail(WireError(kind, "no luck"))) as running, client(running) as sdk:
        with pytest.raises(raised, match="no luck") as caught:
            await sdk.messages.create(model="smol", max_tokens=9, messages=HI)
    assert caught.value.body == {"type": "error", "error": {"type": name, "message": "no luck"}}


async def test_unknown_model_and_bad_body_have_anthropics_shape() -> None:
    async with gateway() as running, client(running) as sdk, running.client() as http:
        with pytest.raises(anthropic.NotFoundError):
            await sdk.messages.create(model="nope", max_tokens=9, messages=HI)
        bad = await http.post("/v1/messages", json={"model": "smol", "messages": [{"role": "user"}]})
    assert bad.status_code == 400
    assert bad.json()["type"] == "error"
    assert "messages[0]" in bad.json()["error"]["message"]


async def test_key_comes_in_its_own_header() -> None:
    async with gateway(keys=[KeySpec("good", "one")]) as running:
        async with client(running, "good") as sdk:
            await sdk.messages.create(model="smol", max_tokens=9, messages=HI)
        async with client(running, "bad") as sdk:
            with pytest.raises(anthropic.AuthenticationError) as caught:
                await sdk.messages.create(model="smol", max_tokens=9, messages=HI)
    assert caught.value.body["error"]["type"] == "authentication_error"  # type: ignore[index]

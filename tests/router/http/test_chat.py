"""Chat completions over a real socket, with the OpenAI SDK and with bare HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest

from protocol.chat import ChatPrompt, ImagePart, TextPart
from protocol.errors import ErrorKind, WireError
from protocol.generate import Delta, DeltaExtra, Generate
from protocol.sampling import JsonSchema
from router.config.settings import Settings
from router.scheduling.effects import Phase
from router.scheduling.events import RequestAnswered
from router.transport.stream import RequestStream
from tests.eventually import eventually_async
from tests.router.http.gateway import Running, fail, gateway, rich, say, silence, tool_call

HI: list[Any] = [{"role": "user", "content": "hi"}]


def client(running: Running) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)


async def post(running: Running, body: object, **options: Any) -> httpx.Response:
    async with running.client() as http:
        content = body if isinstance(body, bytes) else json.dumps(body)
        return await http.post("/v1/chat/completions", content=content, **options)


async def test_plain_answer_with_the_sdk() -> None:
    async with gateway() as running, client(running) as sdk:
        answer = await sdk.chat.completions.create(model="tiny", messages=HI)
    assert answer.choices[0].message.content == "Hello world"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "smol"
    assert answer.usage is not None
    assert answer.usage.total_tokens == 9


async def test_streamed_answer_with_the_sdk() -> None:
    async with gateway() as running, client(running) as sdk:
        stream = await sdk.chat.completions.create(
            model="smol", messages=HI, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello world"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == 2
    assert any(isinstance(event, RequestAnswered) for event in running.owner.events)


async def test_several_choices() -> None:
    async with gateway() as running, client(running) as sdk:
        answer = await sdk.chat.completions.create(model="smol", messages=HI, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert {choice.message.content for choice in answer.choices} == {"Hello world"}


async def test_fields_reach_the_worker() -> None:
    body = {
        "model": "smol",
        "messages": [
            {"role": "system", "content": "be brief"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what is this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGVsbG8="}},
                ],
            },
        ],
        "temperature": 3,
        "top_p": 0.7,
        "top_k": -5,
        "seed": 9,
        "max_tokens": 5,
        "stop": "END",
        "logit_bias": {"12": -3, "x": False},
        "samplers": ["top_k", "temp", "nonsense"],
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
        "logprobs": True,
        "top_logprobs": 2,
        "reasoning_effort": "none",
        "chat_template_kwargs": {"a": [1]},
    }
    async with gateway(listen=False) as running:
        answer = await post(running, body)
    assert answer.status_code == 200, answer.text
    (work,) = running.owner.works
    assert isinstance(work, Generate)
    assert work.request == 1
    assert work.max_tokens == 5
    assert work.stop == ("END",)
    sampling = work.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.seed) == (3.0, 0.7, 0, 9)
    assert sampling.logit_bias == ((12, -3.0), ("x", float("-inf")))
    assert sampling.samplers == ("top_k", "temperature")
    assert sampling.constraint == JsonSchema(b'{"type": "object"}')
    assert sampling.n_probs == 2
    prompt = work.prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages[1].content == (
        TextPart("what is this?"),
        ImagePart(b"hello", "messages[1].content[1].image_url"),
    )
    assert prompt.enable_thinking is False
    assert prompt.template_kwargs_json == b'{"a":[1]}'


async def test_tools_go_in_and_calls_come_out() -> None:
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]
    history = [
        *HI,
        {
            "role": "assistant",
            "tool_calls": [{"id": "c0", "type": "function", "function": {"name": "now", "arguments": '{"a":1}'}}],
        },
        {"role": "tool", "tool_call_id": "c0", "content": "noon"},
    ]
    async with gateway(play=tool_call("now", '{"zone": "UTC"}')) as running, client(running) as sdk:
        answer = await sdk.chat.completions.create(
            model="smol", messages=history, tools=tools, tool_choice={"type": "function", "function": {"name": "now"}}
        )
    (call,) = answer.choices[0].message.tool_calls
    assert (call.id, call.function.name, call.function.arguments) == ("call_1", "now", '{"zone": "UTC"}')
    assert answer.choices[0].finish_reason == "tool_calls"
    prompt = running.owner.works[0].prompt  # type: ignore[union-attr]
    assert isinstance(prompt, ChatPrompt)
    assert prompt.tool_choice == "name:now"
    assert prompt.messages[1].tool_calls[0].arguments == '{"a":1}'
    assert prompt.messages[2].tool_call_id == "c0"


@pytest.mark.parametrize(
    ("kind", "raised"),
    [
        (ErrorKind.INVALID_REQUEST, openai.BadRequestError),
        (ErrorKind.CONTEXT_EXCEEDED, openai.BadRequestError),
        (ErrorKind.NOT_FOUND, openai.NotFoundError),
        (ErrorKind.CONFLICT, openai.ConflictError),
        (ErrorKind.OVERLOADED, openai.RateLimitError),
        (ErrorKind.UNAVAILABLE, openai.InternalServerError),
        (ErrorKind.WORKER_DIED, openai.InternalServerError),
        (ErrorKind.DEADLINE, openai.APIStatusError),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_failure_before_output_is_a_status(kind: ErrorKind, raised: type[Exception], streamed: bool) -> None:
    async with gateway(play=fail(WireError(kind, "no luck"))) as running, client(running) as sdk:
        with pytest.raises(raised, match="no luck"):
            await sdk.chat.completions.create(model="smol", messages=HI, stream=streamed)


async def test_overlong_prompt_says_both_numbers() -> None:
    error = WireError(ErrorKind.CONTEXT_EXCEEDED, "too long", n_prompt_tokens=9000, n_ctx=4096)
    async with gateway(listen=False, play=fail(error)) as running:
        answer = await post(running, {"model": "smol", "messages": HI})
    assert answer.status_code == 400
    assert answer.json() == {
        "error": {
            "code": 400,
            "message": "too long",
            "type": "exceed_context_size_error",
            "n_prompt_tokens": 9000,
            "n_ctx": 4096,
        }
    }


@pytest.mark.parametrize("kind", [ErrorKind.OVERLOADED, ErrorKind.UNAVAILABLE])
async def test_refusal_says_when_to_come_back(kind: ErrorKind) -> None:
    async with gateway(listen=False, play=fail(WireError(kind, "later", retry_after=2.2))) as running:
        answer = await post(running, {"model": "smol", "messages": HI})
    assert answer.headers["retry-after"] == "3"


def half(work: Any, stream: RequestStream) -> None:
    stream.delta(Delta(work.request, "Hel"))


async def test_failure_half_way_is_still_a_status_for_a_body() -> None:
    async with gateway(play=half) as running:
        asking = asyncio.create_task(post(running, {"model": "smol", "messages": HI}))
        await eventually_async(lambda: running.owner.works, 5, "the request arrives")
        running.owner.streams[1].fail(WireError(ErrorKind.WORKER_DIED, "it died"))
        answer = await asking
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == "it died"


async def test_failure_half_way_is_an_event_for_a_stream() -> None:
    body = {"model": "smol", "messages": HI, "stream": True}
    async with (
        gateway(play=half) as running,
        running.client() as http,
        http.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status_code == 200
        running.owner.streams[1].fail(WireError(ErrorKind.WORKER_DIED, "it died"))
        text = (await answer.aread()).decode()
    assert '"content":"Hel"' in text
    assert text.endswith('data: {"error":{"code":503,"message":"it died","type":"worker_died_error"}}\n\n')
    assert "[DONE]" not in text


async def test_silent_stream_shows_signs_of_life_before_its_output() -> None:
    settings = Settings(early_headers_ms=20)
    async with gateway(settings=settings, play=silence) as running, running.client() as http:
        running.owner.play = silence
        body = {"model": "smol", "messages": HI, "stream": True}
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert answer.status_code == 200
            stream = running.owner.streams[1]
            stream.notify(Phase.QUEUED, 2)
            stream.notify(Phase.LOADING, 0, 0.42)
            stream.notify(Phase.RUNNING, 0, 0.61)
            say("ok")(running.owner.works[0], stream)
            text = (await answer.aread()).decode()
    comments = [line for line in text.splitlines() if line.startswith(":")]
    assert comments == [": queued 0", ": queued 2", ": loading 42%", ": prefill 61%"]
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("begun", [False, True])
async def test_client_that_leaves_gives_its_request_up(streamed: bool, begun: bool) -> None:
    async with gateway(play=silence) as running:
        asking = asyncio.create_task(post(running, {"model": "smol", "messages": HI, "stream": streamed}))
        await eventually_async(lambda: running.owner.works, 5, "the request arrives")
        if begun:
            running.owner.streams[1].delta(Delta(1, "Hel"))
        await eventually_async(lambda: running.owner.streams[1].readers == 1, 5, "it is read")
        asking.cancel()
        await eventually_async(lambda: running.owner.left == [1], 5, "the request is given up")
        assert len(running.services.inference) == 0


async def test_answered_request_is_not_given_up() -> None:
    async with gateway(listen=False) as running:
        await post(running, {"model": "smol", "messages": HI})
        await eventually_async(lambda: len(running.services.inference) == 0, 5, "the ticket is dropped")
        assert running.owner.left == []


BAD: list[tuple[Any, int, str]] = [
    ({"model": "smol"}, 400, "'messages' is required"),
    ({"model": "smol", "messages": []}, 400, "'messages' must not be empty"),
    ({"model": "smol", "messages": [{"role": "user"}]}, 400, "messages[0]"),
    ({"model": "smol", "messages": [{"role": "assistant"}]}, 400, "messages[0]"),
    ({"model": "smol", "messages": "hi"}, 400, "messages: expected"),
    ({"messages": HI}, 400, "model name is missing"),
    ({"model": "nope", "messages": HI}, 404, "model 'nope' not found"),
    ({"model": "smil", "messages": HI}, 404, "did you mean 'smol'?"),
    ({"model": "broken", "messages": HI}, 503, "is not a GGUF file"),
    ({"model": "smol", "messages": HI, "n": 5}, 400, "n: the model has 4 slots"),
    ({"model": "smol", "messages": HI, "tool_choice": "required"}, 400, "tool_choice"),
    ({"model": "smol", "messages": HI, "response_format": {"type": "xml"}}, 400, "response_format.type"),
    ({"model": "smol", "messages": HI, "grammar": "a", "json_schema": {}}, 400, "not both"),
    (
        {
            "model": "smol",
            "messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "http://a/b"}]}],
        },
        400,
        "messages[0].content[0].image_url",
    ),
    (b"{", 400, "not valid JSON"),
    (b"", 400, "empty"),
]


@pytest.mark.parametrize(("body", "status", "words"), BAD)
async def test_bad_input(body: object, status: int, words: str) -> None:
    async with gateway(listen=False) as running:
        answer = await post(running, body)
        assert running.owner.works == []
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == status
    assert words in answer.json()["error"]["message"]


@pytest.mark.parametrize("chunked", [False, True])
async def test_large_body_is_refused(chunked: bool) -> None:
    async def pieces() -> Any:
        yield b"x" * 600
        yield b"y" * 600

    async with gateway(settings=Settings(body_limit=1000)) as running, running.client() as http:
        content: Any = pieces() if chunked else b"x" * 1200
        answer = await http.post("/v1/chat/completions", content=content)
    assert answer.status_code == 413


async def test_headers_say_how_a_request_is_to_be_treated() -> None:
    async with gateway(listen=False) as running:
        headers = {"X-Priority": "5", "X-Request-Deadline": "30", "X-Keep-Alive": "0"}
        answer = await post(running, {"model": "smol", "messages": HI}, headers=headers)
    assert answer.headers["x-request-id"].startswith("chatcmpl-")
    (arrived,) = running.owner.arrivals
    assert arrived.priority == 5
    assert arrived.keep_alive == 0
    assert arrived.deadline is not None
    assert (arrived.model, arrived.name) == ("key-smol", "smol")


@pytest.mark.parametrize("header", ["X-Priority", "X-Request-Deadline", "X-Keep-Alive"])
async def test_header_that_is_no_number_is_refused(header: str) -> None:
    async with gateway(listen=False) as running:
        answer = await post(running, {"model": "smol", "messages": HI}, headers={header: "soon"})
    assert answer.status_code == 400
    assert header.lower() in answer.json()["error"]["message"]


async def test_the_only_loaded_model_answers_where_none_is_named() -> None:
    async with gateway(listen=False) as running:
        running.owner.load(running.services.catalogue.models["smol"])
        answer = await post(running, {"messages": HI})
    assert answer.json()["model"] == "smol"


async def test_reasoning_is_apart_from_the_text() -> None:
    async with gateway(listen=False, play=rich(DeltaExtra(reasoning="hm"), text="ok")) as running:
        answer = await post(running, {"model": "smol", "messages": HI})
    message = answer.json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm", "ok")

"""Thousands of mutated bodies: whatever comes, the answer is an answer, and never a fault of ours."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.router.http.gateway import gateway
from tests.router.http.test_native import answers

MESSAGES = [
    {"role": "system", "content": "be brief"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "hi"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        ],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "a", "content": "noon"},
]
SAMPLING = {
    "temperature": 0.5,
    "top_k": 4,
    "seed": 3,
    "logit_bias": [[5, -1.0], ["x", False]],
    "samplers": ["top_k"],
    "stop": ["a"],
    "n": 1,
    "lora": [{"id": 0, "scale": 0.5}],
    "json_schema": {"type": "object"},
}
FUNCTION = {"name": "now", "description": "the time", "parameters": {"type": "object", "properties": {}}}
SEEDS: dict[str, Any] = {
    "/v1/chat/completions": {
        "model": "smol",
        "messages": MESSAGES,
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": "auto",
        "logprobs": True,
        "top_logprobs": 2,
        "chat_template_kwargs": {"a": 1},
        "reasoning_effort": "low",
        "stream_options": {"include_usage": True},
        **{name: value for name, value in SAMPLING.items() if name != "json_schema"},
    },
    "/v1/completions": {"model": "smol", "prompt": ["a", [1, "b"]], "logprobs": 1, "echo": False, **SAMPLING},
    "/v1/responses": {
        "model": "smol",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "function_call", "call_id": "c", "name": "now", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "noon"},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        ],
        "tools": [{"type": "function", **FUNCTION}],
        "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
        "reasoning": {"effort": "low"},
    },
    "/v1/messages": {
        "model": "smol",
        "max_tokens": 5,
        "system": [{"type": "text", "text": "a"}],
        "messages": [
            {"role": "user", "content": [{"type": "image", "source": {"type": "base64", "data": "aGk="}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "now", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "noon"}]},
        ],
        "tools": [{"name": "now", "input_schema": {"type": "object"}}],
        "thinking": {"type": "enabled", "budget_tokens": 5},
    },
    "/v1/embeddings": {"model": "smol", "input": ["a", [1, 2]], "dimensions": 2, "encoding_format": "base64"},
    "/rerank": {"model": "smol", "query": "a", "documents": ["b", {"text": "c"}], "top_n": 1},
    "/completion": {"model": "smol", "prompt": {"prompt_string": "a", "multimodal_data": ["aGk="]}, **SAMPLING},
    "/infill": {"model": "smol", "input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "c"}]},
    "/tokenize": {"model": "smol", "content": "a", "with_pieces": True},
    "/detokenize": {"model": "smol", "tokens": [1, 2]},
    "/apply-template": {"model": "smol", "messages": MESSAGES},
    "/slots/0?action=save": {"model": "smol", "filename": "a"},
    "/lora-adapters?model=smol": [{"id": 0, "scale": 0.5}],
    "/v1/streams/lookup": {"conversation_ids": ["a"]},
    "/v1/chat/completions/control": {"id": "a", "action": "reasoning_end"},
    "/models/load": {"model": "smol"},
    "/api/chat": {
        "model": "smol",
        "messages": MESSAGES[:1],
        "options": {"num_ctx": 5},
        "keep_alive": "5m",
        "format": "json",
    },
    "/api/generate": {"model": "smol", "prompt": "a", "images": ["aGk="], "think": True, "stream": False},
    "/api/embed": {"model": "smol", "input": ["a"], "keep_alive": 3},
    "/api/show": {"model": "smol"},
    "/api/copy": {"source": "smol", "destination": "b"},
}
ODD: list[Any] = [
    None, True, False, 0, -1, 1, 2**31, -(2**63), 2**64, 1e308, -0.0, 0.5, "", "x", "\x00", "é\U0001f600", "a" * 5000,
    "auto", "data:;base64,", "data:image/png;base64,@@@", "http://a/b", "file:///etc/passwd", [], {}, [[]], [None],
    {"": None}, {"type": "text"}, {"type": None}, [1, "a", None, {}], {"a": {"b": {"c": []}}},
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a value, with each of its keys."""
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from places(value[key])


def mutated(seed: Any, source: random.Random) -> bytes:
    """One to three changes to the value, and sometimes one to its bytes."""
    value = json.loads(json.dumps(seed))
    for _ in range(source.randint(1, 3)):
        found = list(places(value))
        if not found:
            break
        container, key = source.choice(found)
        change = source.random()
        if change < 0.7:
            container[key] = copy.deepcopy(source.choice(ODD))
        elif change < 0.85:
            del container[key]
        elif isinstance(container, dict):
            container[source.choice(["x", "type", "stream", "n", "content", ""])] = copy.deepcopy(source.choice(ODD))
    data = bytearray(json.dumps(value, ensure_ascii=source.random() < 0.5).encode())
    if data and source.random() < 0.2:
        for _ in range(source.randint(1, 3)):
            position = source.randrange(max(len(data), 1))
            data[position : position + source.randint(0, 2)] = source.randbytes(source.randint(0, 2))
    return bytes(data)


@pytest.mark.parametrize("rounds", [50, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("path", SEEDS)
async def test_mutated_bodies_are_answered(path: str, rounds: int) -> None:
    source = random.Random(path)
    statuses: set[int] = set()
    async with gateway(play=answers, listen=False) as running, running.client() as http:
        intact = await http.post(path, content=json.dumps(SEEDS[path]))
        assert intact.status_code == 200, intact.text
        for _ in range(rounds):
            body = mutated(SEEDS[path], source)
            answer = await http.post(path, content=body)
            statuses.add(answer.status_code)
            assert answer.status_code in (200, 400, 404, 501, 503), (answer.status_code, answer.text, body)
            if answer.status_code != 200:
                assert "error" in answer.json(), (answer.text, body)
            assert "Traceback" not in answer.text
    assert 400 in statuses

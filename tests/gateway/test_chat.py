"""Chat through the whole gateway: HTTP, ZeroMQ, worker and a real model, with the openai SDK as client."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.gateway.process import Gateway

pytestmark = pytest.mark.model


def ask(text: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": text}]


# Without the system message this small model answers in French, as llama-server's does.
FRANCE: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "You are a helpful assistant who answers in English."},
    {"role": "user", "content": "What is the capital of France?"},
]


def streamed(client: openai.OpenAI, **options: object) -> tuple[str, list[str | None]]:
    """The joined text of a streamed chat, and its finish reasons."""
    chunks = list(client.chat.completions.create(model="smol", stream=True, **options))  # type: ignore[call-overload]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    return text, [choice.finish_reason for choice in choices if choice.finish_reason]


def test_a_streamed_answer_names_paris(client: openai.OpenAI) -> None:
    text, finish = streamed(client, messages=FRANCE, temperature=0, max_tokens=32)
    assert "Paris" in text
    assert finish == ["stop"]


def test_a_plain_answer_counts_its_tokens(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="smol", messages=FRANCE, temperature=0, max_tokens=5)
    assert answer.model == "smol"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5


def test_a_stream_ends_with_usage_when_asked(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model="smol", messages=FRANCE, max_tokens=5, stream=True, stream_options={"include_usage": True}
        )
    )
    usage = chunks[-1].usage
    assert chunks[-1].choices == []
    assert usage is not None
    assert usage.completion_tokens == 5


def test_a_stop_string_ends_the_text_before_it(client: openai.OpenAI) -> None:
    whole, _ = streamed(client, messages=FRANCE, temperature=0, max_tokens=32)
    word = whole.split()[2]
    text, finish = streamed(client, messages=FRANCE, temperature=0, max_tokens=32, stop=[word])
    assert text == whole[: whole.index(word)]
    assert finish == ["stop"]


def test_eight_at_once_each_get_their_answer(client: openai.OpenAI) -> None:
    options = {"messages": FRANCE, "temperature": 0, "max_tokens": 16}
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: streamed(client, **options), range(8)))
    assert all("Paris" in text for text, _ in answers)


def test_a_seed_repeats_its_text_streamed_or_not(client: openai.OpenAI) -> None:
    options = {"messages": ask("Tell me a story."), "temperature": 1.0, "seed": 7, "max_tokens": 24}
    first, _ = streamed(client, **options)
    second, _ = streamed(client, **options)
    plain = client.chat.completions.create(model="smol", **options)  # type: ignore[call-overload]
    other, _ = streamed(client, **{**options, "seed": 8})
    assert first == second == plain.choices[0].message.content
    assert other != first


def test_the_two_lists_of_models_agree(client: openai.OpenAI, http: httpx.Client) -> None:
    names = {model.id for model in client.models.list()}
    entries = {entry["id"]: entry for entry in http.get("/models").json()["data"]}
    assert {"smol", "tiny"} <= names == set(entries)
    assert entries["smol"]["status"]["value"] in ("unloaded", "loading", "loaded")
    assert entries["smol"]["source"] == "models_dir"


def test_load_and_unload(http: httpx.Client) -> None:
    assert http.post("/models/load", json={"model": "tiny"}).json() == {"success": True}
    assert http.post("/models/load", json={"model": "nobody"}).status_code == 404
    answer = http.post("/v1/chat/completions", json={"model": "tiny", "max_tokens": 2, "messages": FRANCE})
    assert answer.status_code == 200
    assert http.post("/models/load", json={"model": "tiny"}).status_code == 400
    assert http.post("/models/unload", json={"model": "tiny"}).json() == {"success": True}


def test_the_router_stays_light(gateway: Gateway, client: openai.OpenAI) -> None:
    streamed(client, messages=FRANCE, max_tokens=2)
    maps = Path(f"/proc/{gateway.process.pid}/maps").read_text()
    assert "libllama" not in maps
    assert "libggml" not in maps
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    assert resident < 60 * 1024

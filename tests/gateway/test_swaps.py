"""Two models and room for one: requests alternate, none is evicted while it serves, and conversations survive it."""

from __future__ import annotations

import concurrent.futures
from pathlib import Path

import httpx
import pytest

from tests.gateway.process import running

pytestmark = pytest.mark.model

CHAT = "/v1/chat/completions"


def test_requests_alternate_between_two_models(models_dir: Path, tmp_path: Path) -> None:
    def ask(http: httpx.Client, model: str, tokens: int) -> dict[str, object]:
        message = {"role": "user", "content": "Count to a hundred."}
        body = {"model": model, "messages": [message], "max_tokens": tokens, "ignore_eos": True}
        answer = http.post(CHAT, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()  # type: ignore[no-any-return]

    with (
        running(tmp_path, "--models-dir", str(models_dir), "--models-max", "1") as gateway,
        httpx.Client(base_url=gateway.url, timeout=90) as http,
        concurrent.futures.ThreadPoolExecutor(4) as pool,
    ):
        for turn in range(6):
            model = ("smol", "tiny")[turn % 2]
            assert ask(http, model, 3)["model"] == model
            loaded = [e["id"] for e in http.get("/models").json()["data"] if e["status"]["value"] == "loaded"]
            assert loaded == [model]
        jobs = [pool.submit(ask, http, ("smol", "tiny")[n % 2], 40) for n in range(12)]
        for number, job in enumerate(jobs):
            answer = job.result()
            assert answer["model"] == ("smol", "tiny")[number % 2]
            assert answer["usage"]["completion_tokens"] == 40  # type: ignore[index]


def conversation(url: str, model: str, other: str, *, between: bool) -> list[tuple[str, int]]:
    """A conversation of three turns, another model's answer `between` them: each turn's text and cached tokens."""
    messages = [{"role": "system", "content": "You tell long stories of llamas, mountains and rivers. " * 12}]
    turns: list[tuple[str, int]] = []
    with httpx.Client(base_url=url, timeout=90) as http:
        for question in ("Tell me a story.", "And then?", "How does it end?"):
            messages.append({"role": "user", "content": question})
            body = {"model": model, "messages": messages, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
            answer = http.post(CHAT, json=body)
            assert answer.status_code == 200, answer.text
            text = answer.json()["choices"][0]["message"]["content"]
            turns.append((text, answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]))
            messages.append({"role": "assistant", "content": text})
            if between:
                swap = {"model": other, "messages": messages[:2], "max_tokens": 2}
                assert http.post(CHAT, json=swap).status_code == 200
    return turns


@pytest.mark.parametrize("model", [pytest.param("smol", marks=pytest.mark.slow), "tiny"])
def test_a_conversation_that_was_swapped_out_goes_on_as_if_nothing_had_been(
    model: str, models_dir: Path, tmp_path: Path
) -> None:
    other = {"smol": "tiny", "tiny": "smol"}[model]
    options = ("--models-dir", str(models_dir), "--ctx-size", "2048", "--kv-keep", "256M")
    with running(tmp_path / "one", *options, "--models-max", "1") as gateway:
        swapped = conversation(gateway.url, model, other, between=True)
    with running(tmp_path / "two", *options) as gateway:
        uninterrupted = conversation(gateway.url, model, other, between=False)
    assert [text for text, _ in swapped] == [text for text, _ in uninterrupted]
    assert all(cached > 100 for _, cached in swapped[1:]), "the state was kept"

"""Bad requests and bad files: a JSON error that says what and why, and everybody else goes on."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

pytestmark = pytest.mark.model

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hello"}]


def refusal(response: httpx.Response) -> dict[str, Any]:
    """The error object of a refused request."""
    error = response.json()["error"]
    assert error["code"] == response.status_code
    assert error["message"]
    return error  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def still_served(http: httpx.Client) -> Any:
    """After each bad request, a good one works."""
    yield
    answer = http.post(CHAT, json={"model": "smol", "messages": HELLO, "max_tokens": 1})
    assert answer.status_code == 200


def test_malformed_json(http: httpx.Client) -> None:
    response = http.post(CHAT, content=b'{"model": "smol", "messages": [')
    assert response.status_code == 400
    assert refusal(response)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"stop": {"a": 1}}, "stop"),
        ({"stream": "yes"}, "stream"),
    ],
)
def test_wrong_values_are_named(http: httpx.Client, change: dict[str, Any], named: str) -> None:
    response = http.post(CHAT, json={"model": "smol", "messages": HELLO, "max_tokens": 1} | change)
    assert response.status_code == 400
    assert named in refusal(response)["message"]


def test_an_unknown_model_is_not_found(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="nobody"):
        client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "hi"}])


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_over_the_context_is_refused_with_both_numbers(http: httpx.Client, stream: bool) -> None:
    messages = [{"role": "user", "content": "llama " * 9000}]
    response = http.post(CHAT, json={"model": "smol", "messages": messages, "stream": stream})
    error = refusal(response)
    assert response.status_code == 400
    assert error["type"] == "exceed_context_size_error"
    assert error["n_prompt_tokens"] > error["n_ctx"] == 8192


@pytest.mark.parametrize(
    ("model", "why"),
    [("truncated", "truncated|tensor|bounds|size"), ("nonsense", "GGUF|magic"), ("alien", "architecture")],
)
def test_a_bad_file_says_why(http: httpx.Client, model: str, why: str) -> None:
    response = http.post(CHAT, json={"model": model, "messages": HELLO})
    error = refusal(response)
    assert response.status_code in (400, 500, 503)
    assert any(word in error["message"] for word in why.split("|")), error
    entry = http.get(f"/v1/models/{model}").json()
    assert entry["status"]["failed"]
    assert any(word in entry["status"]["reason"] for word in why.split("|")), entry["status"]

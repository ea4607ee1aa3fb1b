"""Clients that go away: the slot is free within a step, whatever the request was doing."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.eventually import eventually

pytestmark = pytest.mark.model

CHAT = "/v1/chat/completions"
LONG = "llama herd mountain river stone bread market " * 700


def busy(http: httpx.Client) -> int:
    slots = http.get("/slots", params={"model": "smol"}).json()
    return sum(slot["is_processing"] for slot in slots)


def request(content: str, stream: bool, max_tokens: int) -> dict[str, Any]:
    message = {"role": "user", "content": content}
    return {"model": "smol", "messages": [message], "stream": stream, "max_tokens": max_tokens, "ignore_eos": True}


def test_a_stream_that_is_cut_while_it_decodes(http: httpx.Client) -> None:
    with http.stream("POST", CHAT, json=request("Tell a story.", True, 4000)) as response:
        lines = response.iter_lines()
        while '"content":"' not in next(lines):
            pass
        eventually(lambda: busy(http) == 1, 5, "the status of the slot follows the first output")
    eventually(lambda: busy(http) == 0, 5, "the slot is free after the client left")


@pytest.mark.parametrize(("content", "phase"), [("Tell a story.", "decode"), (LONG, "prefill")])
def test_a_plain_request_that_is_cut(http: httpx.Client, content: str, phase: str) -> None:
    http.post(CHAT, json=request("Hello", False, 1)).raise_for_status()
    with httpx.Client(base_url=http.base_url) as leaver, pytest.raises(httpx.ReadTimeout):
        leaver.post(CHAT, json=request(content, False, 4000), timeout=httpx.Timeout(10, read=1.0))
    eventually(lambda: busy(http) == 0, 5, f"the slot is free after the client left in {phase}")

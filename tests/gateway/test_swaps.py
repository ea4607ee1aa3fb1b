"""Two models and room for one: requests alternate, and the model that serves a request is never evicted under it."""

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

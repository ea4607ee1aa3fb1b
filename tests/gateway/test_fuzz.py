"""Mutated bodies sent to real models: whatever comes, no fault of ours, and no worker dies of it."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import factory
from tests.gateway.process import Gateway, running
from tests.router.http.test_fuzz import SEEDS, mutated

pytestmark = [pytest.mark.model, pytest.mark.timeout(600)]

MODELS = {"/v1/embeddings": "embed", "/api/embed": "embed", "/rerank": "rank"}
"""What the requests to some paths need; all others are for the language model."""
STATUSES = (200, 400, 404, 409, 413, 501, 503)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    factory.language_model(folder / "smol.gguf")
    factory.lora_adapter(folder / "adapter.gguf")
    factory.embedding_model(folder / "embed.gguf")
    factory.reranking_model(folder / "rank.gguf")
    return folder


@pytest.fixture(scope="module")
def fuzzed(folder: Path) -> Iterator[Gateway]:
    presets = folder / "presets.ini"
    presets.write_text(
        f"[*]\nctx-size = 512\nn-predict = 4\nthreads = 1\n\n"
        f"[smol]\nmodel = {folder / 'smol.gguf'}\nlora = {folder / 'adapter.gguf'}\n\n"
        f"[embed]\nmodel = {folder / 'embed.gguf'}\nembeddings = true\n\n"
        f"[rank]\nmodel = {folder / 'rank.gguf'}\nreranking = true\n"
    )
    options = ("--models-preset", str(presets), "--slot-save-path", str(folder / "slots"), "--no-hf-cache")
    with running(folder / "home", *options) as started:
        yield started


def meant_for(path: str, value: Any) -> Any:
    model = MODELS.get(path.partition("?")[0])
    return value if model is None else {**value, "model": model}


@pytest.mark.parametrize("rounds", [8, pytest.param(320, marks=pytest.mark.slow)])
def test_mutated_bodies_are_answered_and_no_worker_dies(fuzzed: Gateway, folder: Path, rounds: int) -> None:
    source = random.Random(rounds)
    statuses: dict[str, set[int]] = {}
    asked = 0
    with httpx.Client(base_url=fuzzed.url, timeout=60) as http:
        for name in ("smol", "embed", "rank"):
            assert http.post("/models/load", json={"model": name}).status_code in (200, 400)  # loaded already
        for path, seed in SEEDS.items():
            intact = http.post(path, content=json.dumps(meant_for(path, seed)))
            assert intact.status_code in STATUSES, intact.text
        for _ in range(rounds):
            for path, seed in SEEDS.items():
                body = mutated(meant_for(path, seed), source)
                answer = http.post(path, content=body)
                asked += 1
                statuses.setdefault(path, set()).add(answer.status_code)
                assert answer.status_code in STATUSES, (path, answer.status_code, answer.text, body)
                assert "Traceback" not in answer.text
        exits = re.findall(r'^llamaherd_worker_exits_total\{.*reason="(\w+)"', http.get("/metrics").text, re.MULTILINE)
    assert set(exits) <= {"asked", "idle"}, exits  # a request may ask for that by `keep_alive`
    assert '"level":"error"' not in fuzzed.log.read_text()
    assert asked == rounds * len(SEEDS)
    assert all(200 in found or 400 in found for found in statuses.values()), statuses

"""One gateway with SmolLM2 and a tiny model for the tests that only talk to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest

from tests import factory
from tests.gateway.process import Gateway, packaged_model, running


@pytest.fixture(scope="session")
def models_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`smol` is SmolLM2, `tiny` a model of a few hundred kilobytes, and the files that are broken are what they say."""
    folder = tmp_path_factory.mktemp("models")
    (folder / "smol.gguf").symlink_to(packaged_model().resolve())
    factory.language_model(folder / "tiny.gguf")
    factory.truncated(folder / "truncated.gguf", folder / "tiny.gguf")
    factory.not_a_model(folder / "nonsense.gguf")
    factory.unknown_architecture(folder / "alien.gguf")
    return folder


@pytest.fixture(scope="module")
def gateway(models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with running(tmp_path_factory.mktemp("home"), "--models-dir", str(models_dir), "--ctx-size", "8192") as started:
        yield started


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        yield client


@pytest.fixture
def client(gateway: Gateway) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", timeout=60, max_retries=0) as sdk:
        yield sdk

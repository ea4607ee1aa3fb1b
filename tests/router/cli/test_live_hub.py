"""Fetching and deleting models from the command line, with the real downloader and a fake hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.factory import language_model
from tests.fakes.hub import FakeFile, FakeHub
from tests.gateway.process import Gateway, running

pytestmark = pytest.mark.model

REPOSITORY = "someone/tiny-GGUF"
MODEL = f"{REPOSITORY}:F32"
COMMAND = (sys.executable, "-P", "-m", "router.cli.main")


def llamaherd(gateway: Gateway, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LLAMAHERD_URL": gateway.url}
    return subprocess.run([*COMMAND, *arguments], input="", capture_output=True, text=True, timeout=60, env=environment)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    with FakeHub() as fake:
        model = language_model(tmp_path / "tiny.gguf", end_bias=8)
        fake.add(REPOSITORY, {"tiny-F32.gguf": FakeFile(model.read_bytes())})
        yield fake


def test_a_model_is_pulled_used_and_deleted(tmp_path: Path, hub: FakeHub) -> None:
    with running(tmp_path / "home", "--spare-workers", "0", HF_ENDPOINT=hub.url, NO_PROXY="127.0.0.1") as gateway:
        dry = llamaherd(gateway, "pull", "--dry-run", REPOSITORY)
        assert "tiny-F32.gguf" in dry.stdout, dry.stderr
        assert json.loads(llamaherd(gateway, "models", "--json").stdout) == []
        pulled = llamaherd(gateway, "pull", MODEL)
        assert pulled.returncode == 0, pulled.stderr
        assert MODEL in pulled.stdout
        (done,) = json.loads(llamaherd(gateway, "downloads", "--json").stdout)
        assert done["state"] == "done"
        (listed,) = json.loads(llamaherd(gateway, "models", "--json").stdout)
        assert (listed["id"], listed["source"], listed["can_remove"]) == (MODEL, "cache", True)
        assert listed["memory"]["predicted"] > 0
        answer = llamaherd(gateway, "chat", MODEL.replace("F32", "f32"), "hello", "-n", "4")
        assert answer.returncode == 0, answer.stderr
        loaded = llamaherd(gateway, "rm", "--yes", MODEL)
        assert loaded.returncode == 1
        assert "unload it first" in loaded.stderr
        assert llamaherd(gateway, "unload", MODEL).returncode == 0
        eventually(lambda: llamaherd(gateway, "rm", "--yes", MODEL).returncode == 0, 10, "the model is deleted")
        assert json.loads(llamaherd(gateway, "models", "--json").stdout) == []


def test_what_the_hub_does_not_have_is_said(tmp_path: Path, hub: FakeHub) -> None:
    with running(tmp_path / "home", "--spare-workers", "0", HF_ENDPOINT=hub.url, NO_PROXY="127.0.0.1") as gateway:
        result = llamaherd(gateway, "pull", "someone/nothing:Q4_0")
        assert result.returncode in (1, 5)
        assert "someone/nothing" in result.stderr
        assert "Traceback" not in result.stderr


def test_one_repository_may_be_all_that_is_served(tmp_path: Path, hub: FakeHub) -> None:
    """`serve --hf-repo` fetches the model when it is first wanted, and any name means it."""
    arguments = ("--hf-repo", MODEL, "--alias", "tiny", "--spare-workers", "0")
    with running(tmp_path / "home", *arguments, HF_ENDPOINT=hub.url, NO_PROXY="127.0.0.1") as gateway:
        answer = llamaherd(gateway, "chat", "--json", "whatever", "hello", "-n", "4")
        assert answer.returncode == 0, answer.stderr
        assert json.loads(answer.stdout)["model"] == "tiny"

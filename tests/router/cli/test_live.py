"""The commands against a real gateway with real workers."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import Struct

from tests.factory import language_model

pytestmark = pytest.mark.model

START_LIMIT = 60.0
COMMAND = (sys.executable, "-P", "-m", "router.cli.main")


class Live(Struct):
    """A gateway that was started with `llamaherd serve`."""

    process: subprocess.Popen[str]
    url: str
    log: list[str]

    def run(self, *arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "LLAMAHERD_URL": self.url}
        return subprocess.run(
            [*COMMAND, *arguments], input=input, capture_output=True, text=True, timeout=60, env=environment
        )


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    folder = tmp_path_factory.mktemp("live")
    models = folder / "models"
    models.mkdir()
    for seed, name in enumerate(("one", "two")):
        language_model(models / f"{name}.gguf", seed=seed)
    (models / "broken.gguf").write_bytes(b"not a model")
    presets = folder / "presets.ini"
    presets.write_text(f"[calm]\nmodel = {models / 'one.gguf'}\nalias = serene\ntemp = 0\n")
    arguments = ["--port", "0", "--models-dir", str(models), "--models-preset", str(presets), "--no-hf-cache"]
    folders = ["--state-dir", str(folder / "state"), "--runtime-dir", str(folder / "run")]
    process = subprocess.Popen(
        [*COMMAND, "serve", *arguments, *folders, "--log-format", "json"], stderr=subprocess.PIPE, text=True
    )
    log: list[str] = []
    addresses: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=drain, args=(process, log, addresses))
    reader.start()
    try:
        yield Live(process, addresses.get(timeout=START_LIMIT), log)
    finally:
        process.send_signal(signal.SIGTERM)
        code = process.wait(timeout=60)
        reader.join()
    assert code == 0, "".join(log)


def drain(process: subprocess.Popen[str], log: list[str], addresses: queue.Queue[str]) -> None:
    """Keep the log, and tell the address as soon as it is in it."""
    assert process.stderr is not None
    with process.stderr as lines:
        for line in lines:
            log.append(line)
            match = re.search(r"listening on (http://[^\"\s]+)", line)
            if match:
                addresses.put(match[1])


def test_health_and_status(live: Live) -> None:
    assert live.run("health").stdout == "ok\n"
    assert live.run("health", "--ready", "-q").returncode == 0
    status = json.loads(live.run("status", "--json").stdout)
    assert status["ready"]
    assert sum(status["models"].values()) == 4


def test_models_are_listed_with_what_is_wrong_with_them(live: Live) -> None:
    found = {entry["id"]: entry for entry in json.loads(live.run("models", "--json").stdout)}
    assert sorted(found) == ["broken", "calm", "one", "two"]
    assert found["broken"]["status"]["failed"]
    assert "not a GGUF file" in found["broken"]["status"]["reason"]
    assert "not a GGUF file" in live.run("models").stdout


def test_a_load_is_followed_and_seen_and_undone(live: Live) -> None:
    loaded = live.run("load", "two")
    assert (loaded.returncode, loaded.stdout) == (0, "two is loaded\n"), loaded.stderr
    assert "two" in {entry["id"] for entry in json.loads(live.run("ps", "--json").stdout)}
    assert live.run("logs", "two").stdout
    assert live.run("unload", "two").returncode == 0
    assert "two" in live.run("queue").stdout


def test_two_names_of_one_file_share_a_worker(live: Live) -> None:
    assert live.run("load", "one").returncode == 0
    assert live.run("load", "serene").returncode == 0
    running = {entry["id"] for entry in json.loads(live.run("ps", "--json").stdout)}
    assert {"one", "calm"} <= running


def test_what_cannot_be_loaded_says_why(live: Live) -> None:
    broken = live.run("load", "broken")
    assert broken.returncode == 1
    assert "not a GGUF file" in broken.stderr
    assert live.run("load", "nobody").returncode == 5


def test_a_chat_in_a_pipe(live: Live) -> None:
    result = live.run("chat", "--json", "calm", "Say something.", "-n", "8")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["content"]
    assert answer["usage"]["completion_tokens"] == 8
    again = live.run("chat", "serene", "-n", "8", input="Say something.")
    assert again.stdout.strip() == answer["content"].strip()


def test_bench_counts_every_token(live: Live) -> None:
    result = live.run("bench", "--json", "-c", "2", "-r", "4", "-n", "8", "one")
    assert result.returncode == 0, result.stderr
    (level,) = json.loads(result.stdout)["levels"]
    assert (level["failed"], level["tokens"]) == (0, 32)


def test_events_show_a_load_as_it_happens(live: Live) -> None:
    environment = {**os.environ, "LLAMAHERD_URL": live.url}
    command = [*COMMAND, "events", "--json", "--snapshot"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as follower:
        assert follower.stdout is not None
        try:
            assert json.loads(follower.stdout.readline())["event"] == "snapshot"
            live.run("unload", "two")
            assert live.run("load", "two").returncode == 0
            for line in follower.stdout:
                event = json.loads(line)
                if event.get("model") == "two" and event.get("data", {}).get("status") == "loaded":
                    break
        finally:
            follower.send_signal(signal.SIGINT)
        assert follower.wait(timeout=10) == 130


def test_a_reload_reads_new_files_and_keeps_what_runs(live: Live, tmp_path: Path) -> None:
    assert live.run("load", "one").returncode == 0
    folder = Path(json.loads(live.run("models", "--json").stdout)[0]["path"] or "").parent
    entry = next(item for item in json.loads(live.run("models", "--json").stdout) if item["id"] == "one")
    folder = Path(entry["path"]).parent
    language_model(folder / "three.gguf", seed=3)
    found = {item["id"]: item for item in json.loads(live.run("models", "--reload", "--json").stdout)}
    assert "three" in found
    assert found["one"]["status"]["value"] == "loaded"
    (folder / "three.gguf").unlink()
    assert "three" not in live.run("models", "--reload").stdout


def test_a_second_gateway_at_the_same_port_is_told_so(live: Live, tmp_path: Path) -> None:
    port = live.url.rpartition(":")[2]
    model = language_model(tmp_path / "m.gguf")
    arguments = [
        "serve",
        "-m",
        str(model),
        "--port",
        port,
        "--state-dir",
        str(tmp_path / "s"),
        "--runtime-dir",
        str(tmp_path / "r"),
    ]
    result = live.run(*arguments)
    assert result.returncode == 1
    assert port in result.stderr
    assert "in use" in result.stderr


def test_the_gateway_stays_light(live: Live) -> None:
    status = Path(f"/proc/{live.process.pid}/status").read_text()
    resident = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10  # type: ignore[index]
    assert resident < 60_000_000
    maps = Path(f"/proc/{live.process.pid}/maps").read_text()
    assert "libllama" not in maps
    assert "libggml" not in maps

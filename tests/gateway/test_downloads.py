"""Downloads through a whole gateway: over HTTP, with the real downloader and the real hub library, from a fake hub."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests import factory
from tests.eventually import eventually
from tests.fakes.hub import FakeHub, Fault
from tests.gateway.process import Gateway, packaged_model, running

REPO = "someone/tiny-GGUF"
MODEL = f"{REPO}:F32"
FILE = "tiny-F32.gguf"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with FakeHub() as fake:
        yield fake


@pytest.fixture
def body(tmp_path: Path) -> bytes:
    """A real model of some hundred kilobytes."""
    factory.language_model(tmp_path / "tiny.gguf", end_bias=8)
    return (tmp_path / "tiny.gguf").read_bytes()


def start(tmp_path: Path, hub: FakeHub, *arguments: str) -> Any:
    """A gateway that knows no models but those of its cache."""
    return running(
        tmp_path / "home", "--spare-workers", "0", *arguments, HF_ENDPOINT=hub.url, NO_PROXY="localhost,127.0.0.1"
    )


@pytest.fixture
def gateway(tmp_path: Path, hub: FakeHub) -> Iterator[Gateway]:
    with start(tmp_path, hub) as started:
        yield started


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        yield client


def downloads(http: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.get("/downloads").raise_for_status().json()["data"]
    return found


def state(http: httpx.Client) -> str:
    return str(downloads(http)[-1]["state"])


def ids(http: httpx.Client) -> list[str]:
    return [entry["id"] for entry in http.get("/models").raise_for_status().json()["data"]]


def ask(http: httpx.Client, model: str, **fields: Any) -> httpx.Response:
    messages = [{"role": "user", "content": "hello"}]
    return http.post("/v1/chat/completions", json={"model": model, "messages": messages, "max_tokens": 4, **fields})


class Follower:
    """Reads `/models/sse` in a thread."""

    def __init__(self, url: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._ready = threading.Event()
        self._client = httpx.Client(base_url=url, timeout=60)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Follower:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._thread.join(10)

    def _read(self) -> None:
        try:
            with self._client.stream("GET", "/models/sse") as stream:
                for line in stream.iter_lines():
                    if line.startswith("data:"):
                        self.events.append(json.loads(line[5:]))
                        self._ready.set()
                        if self.events[-1]["event"] in ("download_finished", "download_failed", "download_cancelled"):
                            return
        except httpx.TransportError:
            return

    def names(self, model: str) -> list[str]:
        return [event["event"] for event in self.events if event["model"] == model]


def test_a_model_arrives_is_listed_without_a_restart_and_answers(
    hub: FakeHub, body: bytes, gateway: Gateway, http: httpx.Client
) -> None:
    hub.add(REPO, {FILE: body})
    hub.rate = 600_000
    with Follower(gateway.url) as follower:
        answer = http.post("/models", json={"model": REPO}).raise_for_status().json()
        assert answer["success"]
        assert (answer["model"], answer["plan"]["size"]) == (MODEL, len(body))
        (entry,) = http.get("/models").json()["data"]
        assert entry["id"] == MODEL
        assert entry["status"]["value"] == "downloading"
        assert entry["status"]["progress"][FILE]["total"] == len(body)
        eventually(lambda: state(http) == "done", 20, "the download ends")
        eventually(lambda: "download_finished" in follower.names(MODEL), 5, "the end is announced")
    assert follower.names(MODEL)[0] == "model_status"
    progress = [event["data"]["progress"] for event in follower.events if event["event"] == "download_progress"]
    assert all(list(each) == [f"{hub.url}/{REPO}/resolve/main/{FILE}"] for each in progress)
    done = [next(iter(each.values()))["done"] for each in progress]
    assert done == sorted(done)
    assert done[-1] == len(body)
    (entry,) = http.get("/models").json()["data"]
    assert (entry["id"], entry["status"]["value"], entry["can_remove"]) == (MODEL, "unloaded", True)
    assert ask(http, MODEL).raise_for_status().json()["choices"][0]["message"]["role"] == "assistant"


def test_clear_errors(hub: FakeHub, body: bytes, http: httpx.Client, tmp_path: Path) -> None:
    hub.add(REPO, {FILE: body})
    hub.add("a/text", {"README.md": b"x"})
    hub.add("a/closed", {FILE: body}, token="hf_x")
    cases = {
        "": 400,
        "nonsense": 400,
        "../../x/y": 400,
        "/etc/passwd": 400,
        f"{REPO}:Q9": 404,
        f"{REPO}@nosuch": 404,
        f"{REPO}/nosuch.gguf": 404,
        "no/such": 404,
        "a/text": 404,
        "a/closed": 404,
    }
    for reference, status in cases.items():
        answer = http.post("/models", json={"model": reference})
        assert answer.status_code == status, (reference, answer.text)
        assert answer.json()["error"]["message"]
    assert "F32" in http.post("/models", json={"model": f"{REPO}:Q9"}).json()["error"]["message"]
    hub.arm(Fault.GATED)
    assert http.post("/models", json={"model": REPO}).status_code == 403
    assert http.post("/models", json={}).status_code == 400
    assert http.delete("/models?model=no/such").status_code == 404
    assert http.delete("/models").status_code == 400
    assert http.get("/downloads/77").status_code == 404
    assert http.post("/downloads/pause", json={"model": "x/y"}).status_code == 404
    assert downloads(http) == []
    assert not (tmp_path / "home" / "hub").exists()


@pytest.mark.slow
def test_a_dry_run_shows_files_and_space(hub: FakeHub, body: bytes, http: httpx.Client) -> None:
    hub.add(REPO, {FILE: body, "mmproj-F16.gguf": b"GGUF1234"})
    answer = http.post("/models", json={"model": REPO, "dry_run": True, "projector": "none"}).raise_for_status().json()
    assert [(file["path"], file["size"]) for file in answer["plan"]["files"]] == [(FILE, len(body))]
    assert [file["role"] for file in answer["plan"]["optional"]] == ["projector"]
    assert answer["plan"]["space"]["missing"] == len(body)
    assert answer["plan"]["space"]["fits"]
    assert ids(http) == []
    assert not hub.gets()


def test_two_callers_one_transfer_one_cancel(hub: FakeHub, body: bytes, gateway: Gateway, http: httpx.Client) -> None:
    hub.add(REPO, {FILE: body})
    hub.rate = 150_000
    first = http.post("/models", json={"model": REPO}).raise_for_status().json()
    second = http.post("/models", json={"model": MODEL}).raise_for_status().json()
    assert first["id"] == second["id"]
    eventually(lambda: downloads(http)[0]["done"] > 70_000, 10, "some bytes are there")
    with Follower(gateway.url) as follower:
        assert follower.events[0]["data"]["downloads"][0]["model"] == MODEL
        assert http.post("/models/unload", json={"model": MODEL}).raise_for_status().json() == {"success": True}
        eventually(lambda: follower.names(MODEL)[-1:] == ["download_cancelled"], 5, "the cancel is announced")
    assert state(http) == "cancelled"
    assert ids(http) == []
    eventually(lambda: http.get("/downloads").json()["partials"], 5, "the partial is listed")
    number = downloads(http)[0]["id"]
    assert http.delete("/downloads", params={"id": number}).raise_for_status().json()["kept_bytes"] > 0
    assert downloads(http) == []
    (partial,) = http.get("/downloads").json()["partials"]
    freed = http.delete("/models", params={"model": REPO, "purge": 1}).raise_for_status().json()["freed_bytes"]
    assert freed == partial["size"] > 0
    assert not list(Path(gateway.log.parent).rglob("*.incomplete"))


def test_deleting_says_what_it_freed_and_waits_for_nobody(hub: FakeHub, body: bytes, http: httpx.Client) -> None:
    hub.add(REPO, {FILE: body})
    http.post("/models", json={"model": REPO}).raise_for_status()
    eventually(lambda: state(http) == "done", 20, "the download ends")
    ask(http, MODEL).raise_for_status()
    refused = http.delete("/models", params={"model": MODEL})
    assert refused.status_code == 409
    assert "unload" in refused.json()["error"]["message"]
    http.post("/models/unload", json={"model": MODEL}).raise_for_status()
    eventually(lambda: http.delete("/models", params={"model": MODEL}).status_code != 409, 10, "it is unloaded")
    assert ids(http) == []
    http.post("/models", json={"model": REPO}).raise_for_status()
    eventually(lambda: state(http) == "done", 20, "the download ends")
    assert http.delete("/models", params={"model": MODEL}).json() == {"success": True, "freed_bytes": len(body)}


@pytest.mark.slow
def test_pause_and_resume(hub: FakeHub, body: bytes, http: httpx.Client) -> None:
    hub.add(REPO, {FILE: body})
    hub.rate = 200_000
    number = http.post("/models", json={"model": REPO}).raise_for_status().json()["id"]
    http.post("/downloads/pause", json={"id": number}).raise_for_status()
    eventually(lambda: state(http) == "paused", 5, "it is paused")
    assert http.post("/downloads/pause", json={"id": number}).status_code == 409
    hub.rate = 0
    http.post("/downloads/resume", json={"model": MODEL}).raise_for_status()
    eventually(lambda: state(http) == "done", 20, "the download ends")


def test_a_killed_gateway_goes_on_where_it_was(hub: FakeHub, body: bytes, tmp_path: Path) -> None:
    large = body + bytes(3_000_000)  # GGUF readers stop at the last tensor
    hub.add(REPO, {FILE: large})
    hub.rate = 1_500_000
    with start(tmp_path, hub) as gateway:
        with httpx.Client(base_url=gateway.url, timeout=60) as http:
            http.post("/models", json={"model": REPO}).raise_for_status()
            eventually(lambda: downloads(http)[0]["done"] > 1_000_000, 10, "a third is there")
        family = psutil.Process(gateway.process.pid).children(recursive=True)
        os.kill(gateway.process.pid, signal.SIGKILL)
        gateway.process.wait(10)
        eventually(lambda: not any(child.is_running() for child in family), 5, "downloader and job die with it")
    before = sum(hub.served.values())
    assert before < len(large)
    with start(tmp_path, hub) as gateway, httpx.Client(base_url=gateway.url, timeout=60) as http:
        eventually(lambda: state(http) == "done", 20, "the download goes on by itself and ends")
        assert ids(http) == [MODEL]
    assert sum(hub.served.values()) <= len(large) + 1_048_576


def test_a_preset_fetches_its_model_when_it_is_first_wanted(hub: FakeHub, body: bytes, tmp_path: Path) -> None:
    hub.add(REPO, {FILE: body})
    hub.rate = 300_000
    presets = tmp_path / "presets.ini"
    presets.write_text(f"[helper]\nhf-repo = {MODEL}\n[ghost]\nhf-repo = no/such\n")
    arguments = ("--models-preset", str(presets), "--early-headers-ms", "100")
    with start(tmp_path, hub, *arguments) as gateway, httpx.Client(base_url=gateway.url, timeout=60) as http:
        assert "helper" in ids(http)
        fields = {
            "model": "helper",
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 4,
            "stream": True,
        }
        with http.stream("POST", "/v1/chat/completions", json=fields) as stream:
            assert stream.status_code == 200
            text = stream.read().decode()
        assert ": downloading" in text
        assert text.rstrip().endswith("data: [DONE]")
        refused = ask(http, "ghost")
        assert refused.status_code == 404
        assert "no/such" in refused.json()["error"]["message"]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_hundred_megabytes(hub: FakeHub, gateway: Gateway, http: httpx.Client) -> None:
    body = packaged_model().read_bytes()
    hub.add("real/SmolLM2-GGUF", {packaged_model().name: body})
    answer = http.post("/models", json={"model": "real/SmolLM2-GGUF"}).raise_for_status().json()
    eventually(lambda: state(http) == "done", 90, "the download ends")
    assert ids(http) == [answer["model"]]
    text = ask(http, answer["model"], max_tokens=8).raise_for_status().json()["choices"][0]["message"]["content"]
    assert text

"""Each client command against a gateway with canned answers."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from click.testing import CliRunner

from router.cli.exits import Exit
from router.cli.main import COMMANDS, group
from router.cli.remote import default_url
from tests.router.cli.conftest import Run
from tests.router.cli.stub import Answer, StubGateway, chunk, entry, stream

SERVERLESS = ("serve", "check", "version", "completion")
ARGUMENTS = {"load": ["m"], "unload": ["m"], "pull": ["u/r"], "rm": ["--yes", "m"], "chat": ["m", "hello"]}
CLIENTS = [name for name in COMMANDS if name not in SERVERLESS]


def error(status: int, message: str, **headers: str) -> Answer:
    return Answer(status, {"error": {"code": status, "message": message, "type": "x"}}, headers=headers)


class TestEveryCommand:
    @pytest.mark.parametrize("name", COMMANDS)
    def test_its_help_shows_an_example(self, name: str) -> None:
        result = CliRunner().invoke(group, [name, "--help"])
        assert result.exit_code == 0
        assert f"llamaherd {name}" in result.output.split("Examples:")[1]

    @pytest.mark.parametrize("name", CLIENTS)
    def test_a_dead_gateway_is_a_plain_message(self, name: str) -> None:
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{unused.getsockname()[1]}"
            result = CliRunner().invoke(group, [name, "--url", url, *ARGUMENTS.get(name, [])], input="")
        assert result.exit_code == Exit.UNREACHABLE
        assert "llamaherd serve" in result.stderr
        assert "Traceback" not in result.output

    @pytest.mark.parametrize("name", CLIENTS)
    @pytest.mark.parametrize(("status", "code"), [(401, Exit.DENIED), (403, Exit.DENIED)])
    def test_a_key_that_does_not_fit_has_its_own_exit_code(
        self, name: str, status: int, code: Exit, gateway: StubGateway, run: Run
    ) -> None:
        gateway.answer = lambda asked: error(status, "Invalid API Key")  # type: ignore[method-assign]
        result = run(name, *ARGUMENTS.get(name, []))
        assert result.exit_code == code
        assert "Invalid API Key" in result.stderr

    def test_the_default_is_the_port_that_serve_would_take(self, gateway: StubGateway) -> None:
        port = gateway.url.rpartition(":")[2]
        result = CliRunner().invoke(group, ["health"], env={"LLAMAHERD_URL": None, "LLAMAHERD_PORT": port})
        assert (result.exit_code, result.stdout) == (0, "ok\n")

    @pytest.mark.parametrize(
        ("environment", "url"),
        [
            ({}, "http://127.0.0.1:8080"),
            ({"LLAMAHERD_HOST": "10.0.0.5", "LLAMAHERD_PORT": "9000"}, "http://10.0.0.5:9000"),
            ({"LLAMA_ARG_HOST": "0.0.0.0", "LLAMA_ARG_PORT": "81"}, "http://127.0.0.1:81"),
            ({"LLAMAHERD_HOST": "::", "LLAMA_ARG_HOST": "10.0.0.5"}, "http://[::1]:8080"),
            ({"LLAMAHERD_HOST": "gw.local, 127.0.0.1", "LLAMAHERD_SSL_CERT_FILE": "c.pem"}, "https://gw.local:8080"),
            ({"LLAMAHERD_HOST": "/run/llamaherd/http.sock"}, "unix:/run/llamaherd/http.sock"),
        ],
    )
    def test_the_default_is_where_serve_would_listen(
        self, environment: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for prefix in ("LLAMAHERD_", "LLAMA_ARG_"):
            for name in ("HOST", "PORT", "SSL_CERT_FILE"):
                monkeypatch.delenv(prefix + name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        assert default_url() == url

    def test_an_address_that_is_none(self) -> None:
        result = CliRunner().invoke(group, ["ps", "--url", "ftp://x"])
        assert result.exit_code == Exit.USAGE
        assert "http://host:port" in result.stderr

    def test_the_key_is_sent_and_only_the_first_of_several(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("GET", "/models", {"data": []})
        assert run("models", "--api-key", "one,two").exit_code == 0
        assert gateway.asked[-1].headers["authorization"] == "Bearer one"

    def test_something_else_than_a_gateway(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("GET", "/models", Answer(text="<html>"))
        result = run("models")
        assert result.exit_code == Exit.FAILED
        assert "does not answer like a gateway" in result.stderr


class TestHealth:
    def test_alive(self, run: Run) -> None:
        result = run("health")
        assert (result.exit_code, result.stdout) == (0, "ok\n")

    def test_not_ready(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("GET", "/ready", error(503, "the gateway is stopping"))
        result = run("health", "--ready")
        assert result.exit_code == Exit.UNHEALTHY
        assert "the gateway is stopping" in result.stderr
        quiet = run("health", "--ready", "--quiet")
        assert (quiet.exit_code, quiet.output) == (Exit.UNHEALTHY, "")
        assert run("health", "--quiet").exit_code == 0


class TestListing:
    @pytest.fixture(autouse=True)
    def models(self, gateway: StubGateway) -> None:
        loaded = entry(
            "big",
            "loaded",
            slots={"total": 4, "busy": 1},
            tokens_per_second=12.34,
            memory={"predicted": 1, "resident": 3_000_000_000},
            requests={"running": 1, "waiting": 2},
            pinned=True,
        )
        loading = entry("slow", "loading", status={"progress": 0.42, "stage": "text_model"})
        failed = entry("bad", status={"failed": True, "reason": "No such file"}, aliases=["worse"])
        gateway.on("GET", "/models", {"data": [failed, loaded, loading, entry("idle")]})
        gateway.on(
            "GET", "/queue", {"waiting": [{"position": 1, "model": "idle", "waited_s": 3.2, "reason": "no room"}]}
        )

    def test_models(self, run: Run) -> None:
        lines = run("models").stdout.splitlines()
        assert lines[0].split() == ["MODEL", "STATE", "SOURCE", "MEMORY", "ALIASES", "REASON"]
        assert lines[1].split() == ["bad", "failed", "preset", "~2", "MB", "worse", "No", "such", "file"]
        assert "3 GB" in lines[2]
        assert "42%" in lines[3]

    def test_reload_is_asked_for(self, gateway: StubGateway, run: Run) -> None:
        run("models", "--reload")
        assert gateway.asked[-1].query == {"reload": "1"}

    def test_ps_shows_only_what_runs(self, run: Run) -> None:
        lines = run("ps").stdout.splitlines()
        assert [line.split()[0] for line in lines] == ["MODEL", "big", "slow"]
        assert {"1/4", "1+2", "12.3", "pinned"} <= set(lines[1].split())
        assert [item["id"] for item in json.loads(run("ps", "--json").stdout)] == ["big", "slow"]

    def test_queue(self, run: Run) -> None:
        assert "no room" in run("queue").stdout
        assert json.loads(run("queue", "--json").stdout)["waiting"][0]["model"] == "idle"

    def test_status(self, gateway: StubGateway, run: Run) -> None:
        found = json.loads(run("status", "--json").stdout)
        assert found["ready"] is True
        assert found["models"] == {"failed": 1, "loaded": 1, "loading": 1, "unloaded": 1}
        assert (found["running"], found["waiting"]) == (1, 1)
        gateway.on("GET", "/ready", error(503, "stopping"))
        assert "no: stopping" in run("status").stdout

    def test_no_models_says_what_to_do(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("GET", "/models", {"data": []})
        assert "llamaherd pull" in run("models").stdout


class TestLoad:
    def follow(self, gateway: StubGateway, *states: dict[str, Any]) -> None:
        gateway.on("GET", "/v1/models/m", [Answer(value=state) for state in states])
        gateway.on("POST", "/models/load", {"success": True})

    def test_it_waits_until_the_model_is_ready(self, gateway: StubGateway, run: Run) -> None:
        loading = entry("m", "loading", status={"progress": 0.5, "stage": "text_model"})
        self.follow(gateway, entry("m"), entry("m"), loading, entry("m", "loaded"))
        result = run("load", "m")
        assert (result.exit_code, result.stdout) == (0, "m is loaded\n")
        assert "m: 50% text_model" in result.stderr
        assert gateway.requests("POST", "/models/load")[0].body == {"model": "m"}

    def test_a_loaded_model_is_not_asked_for_again(self, gateway: StubGateway, run: Run) -> None:
        self.follow(gateway, entry("m", "loaded"))
        assert run("load", "m").exit_code == 0
        assert gateway.requests("POST", "/models/load") == []

    def test_a_failure_shows_its_reason(self, gateway: StubGateway, run: Run) -> None:
        self.follow(
            gateway, entry("m"), entry("m", "loading"), entry("m", status={"failed": True, "reason": "out of memory"})
        )
        result = run("load", "m")
        assert result.exit_code == Exit.FAILED
        assert "out of memory" in result.stderr

    def test_an_unload_in_between_ends_the_wait(self, gateway: StubGateway, run: Run) -> None:
        self.follow(gateway, entry("m"), entry("m", "loading"), entry("m"))
        assert "unloaded again" in run("load", "m").stderr

    def test_an_unknown_model(self, run: Run) -> None:
        assert run("load", "m").exit_code == Exit.NOT_FOUND

    def test_without_waiting(self, gateway: StubGateway, run: Run) -> None:
        self.follow(gateway, entry("m"))
        assert run("load", "--no-wait", "m").stdout == "m is unloaded\n"

    def test_unload(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("POST", "/models/unload", {"success": True})
        assert run("unload", "m").exit_code == 0
        assert gateway.asked[-1].body == {"model": "m", "force": False}
        assert run("unload", "--force", "m").exit_code == 0
        assert gateway.asked[-1].query == {"force": "1"}


def job(state: str, **more: Any) -> dict[str, Any]:
    base = {
        "id": 7,
        "model": "u/r:Q4_0",
        "reference": "u/r",
        "state": state,
        "done": 0,
        "total": 0,
        "rate": 0,
        "eta": -1,
    }
    return {**base, "reason": "", "error": None, "files": [], **more}


class TestDownloads:
    def test_pull_follows_to_the_end(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("POST", "/models", {"success": True, **job("queued")})
        half = [{"path": "a.gguf", "done": 50, "total": 100}, {"path": "b.gguf", "done": 0, "total": 100}]
        steps = [job("downloading", done=50, total=200, rate=10, files=half), job("done", done=200, total=200)]
        gateway.on("GET", "/downloads/7", [Answer(value=step) for step in steps])
        result = run("pull", "u/r", "--projector", "none")
        assert result.exit_code == 0
        assert "u/r:Q4_0 is there (200 B)" in result.stdout
        assert "a.gguf: 50%" in result.stderr
        assert gateway.requests("POST", "/models")[0].body == {"model": "u/r", "projector": "none"}

    def test_pull_that_fails(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("POST", "/models", {"success": True, **job("queued")})
        gateway.on("GET", "/downloads/7", job("failed", error={"type": "no_space", "message": "disk full"}))
        result = run("pull", "u/r")
        assert result.exit_code == Exit.FAILED
        assert "disk full" in result.stderr

    def test_an_interrupt_cancels(self, gateway: StubGateway, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        gateway.on("POST", "/models", {"success": True, **job("downloading")})
        gateway.on("DELETE", "/downloads/7", {"success": True, "kept_bytes": 1500})

        def interrupt(seconds: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr("router.cli.pull.time.sleep", interrupt)
        result = run("pull", "u/r")
        assert result.exit_code == Exit.INTERRUPTED
        assert "1.5 kB are kept" in result.stderr
        assert len(gateway.requests("DELETE", "/downloads/7")) == 1

    def test_detached(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("POST", "/models", {"success": True, **job("queued")})
        assert "llamaherd downloads" in run("pull", "--detach", "u/r").stdout
        assert len(gateway.asked) == 1

    @pytest.mark.parametrize(("fits", "text"), [(True, "9 GB free"), (False, "NOT ENOUGH SPACE")])
    def test_a_dry_run_shows_files_and_space(self, fits: bool, text: str, gateway: StubGateway, run: Run) -> None:
        files = [{"path": "m-Q4_0.gguf", "size": 3_000_000_000, "role": "model"}]
        space = {"missing": 3_000_000_000, "free": 9_000_000_000, "reserved": 0, "margin": 0, "fits": fits}
        plan = {"commit": "abc", "size": 3_000_000_000, "files": files, "optional": [], "space": space}
        gateway.on("POST", "/models", {"success": True, "plan": plan, **job("planned")})
        result = run("pull", "--dry-run", "u/r")
        assert text in result.stdout
        assert "m-Q4_0.gguf" in result.stdout
        assert gateway.asked[-1].body == {"model": "u/r", "dry_run": True}

    def test_a_retry_time_is_shown(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("POST", "/models", error(503, "busy", **{"Retry-After": "12"}))
        assert "try again in 12 s" in run("pull", "u/r").stderr

    def test_listing_and_cancelling(self, gateway: StubGateway, run: Run) -> None:
        running = job("downloading", done=50, total=200, rate=10, eta=15)
        gateway.on("GET", "/downloads", {"data": [running, job("failed", id=8, error={"message": "gone"})]})
        lines = run("downloads").stdout.splitlines()
        assert "25%" in lines[1]
        assert "15.0s" in lines[1]
        assert "gone" in lines[2]
        gateway.on("DELETE", "/downloads/7", {"success": True, "kept_bytes": 0})
        assert run("downloads", "--cancel", "7", "--purge").exit_code == 0
        assert gateway.asked[-1].query == {"purge": "1"}
        assert run("downloads", "--cancel", "nothing").exit_code == Exit.NOT_FOUND

    @pytest.mark.parametrize("verb", ["pause", "resume"])
    def test_one_is_paused_and_resumed(self, verb: str, gateway: StubGateway, run: Run) -> None:
        gateway.on("GET", "/downloads", {"data": [job("paused")]})
        gateway.on("POST", f"/downloads/{verb}", {"success": True})
        assert run("downloads", f"--{verb}", "u/r").stdout == f"{verb}d u/r\n"
        assert gateway.asked[-1].body == {"id": 7}

    def test_rm_asks_first(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("DELETE", "/models", {"success": True, "freed_bytes": 2_000_000})
        assert run("rm", "u/r", input="n\n").exit_code == Exit.FAILED
        assert gateway.requests("DELETE", "/models") == []
        assert "freed 2 MB" in run("rm", "u/r", input="y\n").stdout
        assert gateway.requests("DELETE", "/models")[0].query == {"model": "u/r"}
        assert json.loads(run("rm", "--yes", "--json", "a", "b").stdout)["deleted"] == ["a", "b"]
        run("rm", "--yes", "--old", "u/r")
        assert gateway.asked[-1].query == {"model": "u/r", "old": "1"}


class TestChat:
    def test_one_answer(self, gateway: StubGateway, run: Run) -> None:
        usage = {"choices": [], "usage": {"completion_tokens": 2}}
        gateway.on(
            "POST", "/v1/chat/completions", stream(chunk(), chunk("Hel"), chunk("lo"), usage, comments=("loading 5%",))
        )
        result = run("chat", "m", "Say", "hello", "-s", "Be brief.", "-t", "0", "-n", "5")
        assert (result.exit_code, result.stdout) == (0, "Hello\n")
        body = gateway.asked[-1].body
        assert body["messages"] == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Say hello"},
        ]
        assert (body["temperature"], body["max_tokens"], body["stream"]) == (0, 5, True)

    def test_text_on_standard_input_joins_the_prompt(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("POST", "/v1/chat/completions", stream(chunk("ok")))
        run("chat", "m", "Review this:", input="some text\n")
        assert gateway.asked[-1].body["messages"][-1]["content"] == "Review this:\n\nsome text"

    def test_as_json(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("POST", "/v1/chat/completions", stream(chunk(None, reasoning_content="hm"), chunk("42")))
        found = json.loads(run("chat", "--json", "m", "?").stdout)
        assert (found["content"], found["reasoning"]) == ("42", "hm")

    def test_without_a_name_the_loaded_model_answers(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("GET", "/models", {"data": [entry("a"), entry("b", "loaded")]})
        gateway.on("POST", "/v1/chat/completions", stream(chunk("ok")))
        assert run("chat", input="hello").exit_code == 0
        assert gateway.asked[-1].body["model"] == "b"
        gateway.on("GET", "/models", {"data": [entry("a"), entry("b")]})
        result = run("chat", input="hello")
        assert result.exit_code == Exit.USAGE
        assert "a, b" in result.stderr

    def test_an_error_in_the_stream_and_a_stream_that_breaks_off(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("POST", "/v1/chat/completions", stream(chunk("a"), {"error": {"message": "the worker died"}}))
        result = run("chat", "m", "?")
        assert result.exit_code == Exit.FAILED
        assert "the worker died" in result.stderr
        gateway.on("POST", "/v1/chat/completions", stream(chunk("a"), done=False))
        assert "broke off" in run("chat", "m", "?").stderr
        gateway.on("POST", "/v1/chat/completions", error(404, "model 'm' not found"))
        unknown = run("chat", "m", "?")
        assert (unknown.exit_code, unknown.stdout) == (Exit.NOT_FOUND, "")

    def test_nothing_asked(self, run: Run) -> None:
        assert run("chat", "m", input="").exit_code == Exit.USAGE


class TestLogs:
    def test_lines(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("GET", "/logs", Answer(text="one\ntwo\n"))
        assert run("logs", "-f", "m").stdout == "one\ntwo\n"
        assert gateway.asked[-1].query == {"model": "m", "follow": "1"}
        assert run("logs", "--json", "m").stdout == '{"line": "one"}\n{"line": "two"}\n'

    def test_so_many_lines_are_asked_for(self, gateway: StubGateway, run: Run) -> None:
        gateway.answer = lambda asked: Answer(text=f"{sorted(asked.query.items())}\n")  # type: ignore[method-assign]
        assert run("logs", "-n", "5", "m").stdout == "[('lines', '5'), ('model', 'm')]\n"
        assert run("logs", "-n", "-1", "m").exit_code == Exit.USAGE

    def test_a_stream_that_breaks_off(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("GET", "/logs", Answer(text="one\n", cut=True))
        result = run("logs", "m")
        assert result.stdout == "one\n"


class TestBench:
    def test_levels(self, gateway: StubGateway, run: Run) -> None:
        usage = {"choices": [], "usage": {"completion_tokens": 3}}
        gateway.on("POST", "/v1/chat/completions", lambda asked: stream(chunk("a"), chunk("b"), chunk("c"), usage))
        found = json.loads(run("bench", "--json", "-c", "1,3", "m").stdout)
        assert [(level["clients"], level["requests"], level["tokens"]) for level in found["levels"]] == [
            (1, 2, 6),
            (3, 6, 18),
        ]
        texts = {asked.body["messages"][0]["content"] for asked in gateway.requests("POST", "/v1/chat/completions")}
        assert len(texts) > 3

    def test_a_gateway_that_refuses_everything(self, gateway: StubGateway, run: Run) -> None:
        gateway.on("POST", "/v1/chat/completions", error(503, "too busy"))
        result = run("bench", "-c", "1", "m")
        assert result.exit_code == Exit.FAILED
        assert "too busy" in result.stderr

    def test_bad_levels(self, run: Run) -> None:
        assert run("bench", "-c", "1,x", "m").exit_code == Exit.USAGE


def test_version(run: Run) -> None:
    found = json.loads(run("version", "--json").stdout)
    assert found["backends"][0] == "cpu"
    assert run("version").stdout.startswith("llamaherd ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, run: Run) -> None:
    assert "_LLAMAHERD_COMPLETE" in run("completion", shell).stdout

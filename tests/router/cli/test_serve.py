"""The command line of `serve` and `check`, up to where the gateway would start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from router.cli.exits import Exit
from router.cli.main import group
from router.cli.options import TableCommand
from router.cli.serve import command as serve
from router.config.configuration import Configuration
from router.config.flags import OPTIONS
from router.config.option import Assignment, Option
from tests.factory import language_model


def given(*arguments: str) -> tuple[Assignment, ...]:
    """What a command line is understood as."""
    found: list[tuple[Assignment, ...]] = []

    @click.command(cls=TableCommand)
    @click.pass_context
    def probe(ctx: click.Context) -> None:
        found.append(ctx.obj)

    probe.main(list(arguments), standalone_mode=False)
    return found[0]


def values(*arguments: str) -> dict[str, Any]:
    return {item.option.field: item.value for item in given(*arguments)}


@pytest.mark.parametrize(
    "option", [option for option in OPTIONS if not option.preset_only], ids=lambda option: option.name
)
def test_every_spelling_is_accepted(option: Option) -> None:
    for flag in option.flags:
        (item,) = given(flag) if option.is_switch else given(flag, *["1"] * option.words)
        assert item.option is option
    for flag in option.off:
        (item,) = given(flag)
        assert item.texts == ("off",)


def test_an_option_of_two_words() -> None:
    assert values("--control-vector-layer-range", "2", "7")["control_vector_layers"] == (2, 7)


def test_a_llama_server_command_line() -> None:
    found = values(
        *"-m model.gguf -c 8192 -np 4 -ngl 99 -b 512 -ub 256 -fa on -ctk q8_0 -ts 3,1 -t 8 --temp 0.2".split()
    )
    assert found.pop("model").endswith("/model.gguf")
    assert found == {
        "ctx_size": 8192,
        "slots": 4,
        "n_gpu_layers": 99,
        "batch_size": 512,
        "ubatch_size": 256,
        "flash_attn": "on",
        "cache_type_k": "q8_0",
        "tensor_split": (3.0, 1.0),
        "threads": 8,
        "temperature": 0.2,
    }


def test_negative_numbers_are_values() -> None:
    assert values("-n", "-1", "--seed", "-1") == {"max_tokens": -1, "seed": None}


def test_repeated_options_add_up_or_the_last_counts() -> None:
    assert values("--lora", "/a", "--lora", "/b")["adapters"][1].path == "/b"
    assert values("-c", "1", "-c", "2") == {"ctx_size": 2}


def test_options_keep_their_order() -> None:
    assert [item.option.name for item in given("--port", "1", "-c", "2", "--host", "x")] == ["port", "ctx-size", "host"]


def test_an_unknown_option_is_answered_with_the_nearest() -> None:
    result = CliRunner().invoke(group, ["serve", "--model-dir", "x"])
    assert result.exit_code == Exit.USAGE
    assert "--models-dir" in result.stderr


class TestServe:
    @pytest.fixture
    def started(self, monkeypatch: pytest.MonkeyPatch) -> list[Configuration]:
        """Configurations that would have been served."""
        found: list[Configuration] = []

        def run(configuration: Configuration) -> int:
            found.append(configuration)
            return 7

        monkeypatch.setattr("router.app.run", run)
        return found

    def invoke(self, *arguments: str, **environment: str) -> Any:
        return CliRunner().invoke(
            serve, arguments, env={"HF_HUB_CACHE": "/does/not/exist", **environment}, catch_exceptions=False
        )

    def test_it_hands_over_and_ends_as_the_application_does(self, started: list[Configuration], tmp_path: Path) -> None:
        path = language_model(tmp_path / "m.gguf")
        result = self.invoke("-m", str(path), "--port", "0", LLAMA_ARG_CTX_SIZE="512")
        assert result.exit_code == 7
        (configuration,) = started
        assert configuration.settings.port == 0
        assert configuration.catalogue.resolve("anything").parameters.ctx_size == 512  # type: ignore[union-attr]

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (["-m", "/does/not/exist.gguf"], "/does/not/exist.gguf"),
            (["--models-dir", "/does/not/exist"], "/does/not/exist"),
            (["--port", "99999"], "port"),
            (["--tools", "all"], "--tools is not supported"),
        ],
    )
    def test_what_is_wrong_is_said_plainly(
        self, arguments: list[str], reason: str, started: list[Configuration]
    ) -> None:
        result = self.invoke(*arguments)
        assert result.exit_code == Exit.USAGE
        assert reason in result.stderr
        assert started == []

    def test_gpu_layers_without_a_gpu_end_the_start(
        self, started: list[Configuration], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("router.config.machine.gpu_device", lambda backends: "")
        path = language_model(tmp_path / "m.gguf")
        result = self.invoke("-m", str(path), "-ngl", "99")
        assert result.exit_code == Exit.USAGE
        assert "GPU" in result.stderr


class TestCheck:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        model = language_model(tmp_path / "m.gguf")
        path = tmp_path / "presets.ini"
        path.write_text(f"[*]\nctk = q8_0\n[good]\nmodel = {model}\nc = 512\n[bad]\nmodel = {model}\nctx = 5\n")
        return path

    def test_the_report_names_values_origins_and_memory(self, file: Path) -> None:
        result = CliRunner().invoke(group, ["check", str(file), "-c", "256", "-cram", "48", "--no-hf-cache"])
        assert result.exit_code == Exit.FAILED
        for text in (
            "unknown key 'ctx'",
            "ctx-size = 512 ([good] line 5) is overridden by --ctx-size",
            "[*] line 2",
            "memory on host",
            "caches may grow to 50.3 MB",
            "context 256",
        ):
            assert text in result.stdout

    def test_as_json(self, file: Path) -> None:
        file.write_text(file.read_text().split("[bad]")[0])
        result = CliRunner().invoke(group, ["check", str(file), "--json", "--no-hf-cache"])
        assert result.exit_code == 0
        (model,) = json.loads(result.stdout)["models"]
        assert (model["id"], model["context"], model["error"]) == ("good", 512, None)
        memory = model["memory"][0]
        assert memory["total"] == memory["weights"] + memory["context"] + memory["compute"] > 0
        assert memory["caches"] > 0

    def test_a_file_that_cannot_be_read(self) -> None:
        result = CliRunner().invoke(group, ["check", "/does/not/exist.ini"])
        assert result.exit_code == Exit.USAGE
        assert "/does/not/exist.ini" in result.stderr


def test_serve_imports_nothing_that_only_clients_need() -> None:
    code = "import sys, router.cli.serve; print(sorted({n.split('.')[0] for n in sys.modules}))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    for name in ("rich", "llama_cpp", "numpy", "huggingface_hub"):
        assert f"'{name}'" not in output


@pytest.mark.parametrize("name", ["health", "version"])
def test_small_commands_import_neither_web_server_nor_tables(name: str) -> None:
    code = f"import sys, router.cli.{name}; print(sorted({{n.split('.')[0] for n in sys.modules}}))"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    for module in ("rich", "starlette", "uvicorn", "zmq"):
        assert f"'{module}'" not in output

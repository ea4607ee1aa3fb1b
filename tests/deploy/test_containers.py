from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from router.config.flags import OPTIONS
from router.config.settings import Settings
from router.security.keyfile import parse_key_lines
from router.security.scopes import ALL_SCOPES, Scope
from tests.deploy.files import DEPLOY, load_yaml, variables

DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
BAKE = DEPLOY / "docker" / "docker-bake.json"
README = DEPLOY / "README.md"
COMPOSE = DEPLOY / "compose" / "compose.yaml"


def bake_targets() -> dict[str, dict[str, Any]]:
    """Targets with what they inherit filled in."""
    raw: dict[str, dict[str, Any]] = json.loads(BAKE.read_text())["target"]

    def resolve(name: str) -> dict[str, Any]:
        own = raw[name]
        merged: dict[str, Any] = {"args": {}}
        for parent in own.get("inherits", []):
            base = resolve(parent)
            merged = {**merged, **base, "args": {**merged["args"], **base["args"]}}
        return {**merged, **own, "args": {**merged["args"], **own.get("args", {})}}

    return {name: resolve(name) for name in raw}


def compose() -> dict[str, Any]:
    (document,) = load_yaml(COMPOSE)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("target", sorted(bake_targets()))
def test_a_backend_is_a_set_of_arguments_that_the_dockerfile_has(target: str) -> None:
    declared = set(re.findall(r"^ARG (\w+)", DOCKERFILE.read_text(), re.MULTILINE))
    settings = bake_targets()[target]
    assert set(settings["args"]) <= declared
    assert settings["tags"] == [f"llamaherd:{target}"]
    assert (DEPLOY.parent / settings["dockerfile"]) == DOCKERFILE


def test_all_backends_of_the_hardware_matrix_are_there() -> None:
    options = {name: target["args"]["CMAKE_ARGS"] for name, target in bake_targets().items()}
    for name, needed in {
        "cuda12": "-DGGML_CUDA=ON",
        "cuda13": "-DGGML_CUDA=ON",
        "rocm": "-DGGML_HIP=ON",
        "vulkan": "-DGGML_VULKAN=ON",
        "sycl-f16": "-DGGML_SYCL_F16=ON",
        "openvino": "-DGGML_OPENVINO=ON",
        "kleidiai": "-DGGML_CPU_KLEIDIAI=ON",
        "cann-910b": "-DSOC_TYPE=ascend910b",
        "cann-310p": "-DSOC_TYPE=ascend310p",
    }.items():
        assert needed in options[name]
    assert "-DGGML_SYCL=ON" in options["sycl-f32"]
    assert "F16" not in options["sycl-f32"]
    assert all("-DGGML_RPC=ON" in option for option in options.values())


def test_the_image_holds_what_the_ignore_file_lets_through() -> None:
    allowed = {
        line[1:]
        for line in (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        word
        for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE.read_text(), re.MULTILINE)
        for word in line.split()
    }
    assert copied == allowed
    assert all((DEPLOY.parent / name).exists() for name in copied)


@pytest.mark.parametrize("path", sorted(p for p in DEPLOY.rglob("*") if p.is_file()), ids=lambda path: path.name)
def test_environment_names_are_options(path: Path) -> None:
    known = {option.own_env for option in OPTIONS}
    assert set(variables(path.read_text())) <= known


def test_the_compose_file_fits_its_schema() -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


def test_ports_are_on_loopback_and_mounted_files_exist() -> None:
    for name, service in compose()["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (COMPOSE.parent / source).exists(), source


def test_both_gateways_drain_before_they_are_killed() -> None:
    services = compose()["services"]
    assert {services["gateway"]["profiles"][0], services["gateway-gpu"]["profiles"][0]} == {"cpu", "gpu"}
    for name in ("gateway", "gateway-gpu"):
        assert services[name]["init"] is True
        assert services[name]["stop_grace_period"] == "2m"
        assert services[name]["healthcheck"]["test"] == ["CMD", "llamaherd", "health"]
    assert Settings().drain_timeout < 100


def test_gpu_build_arguments_are_those_of_the_bake_file() -> None:
    args = compose()["services"]["gateway-gpu"]["build"]["args"]
    assert args == bake_targets()["cuda13"]["args"]


def make_keys(folder: Path) -> str:
    done = subprocess.run(
        ["sh", str(DEPLOY / "compose" / "make-keys.sh"), str(folder)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("od") is None, reason="od is not installed")
def test_keys_are_made_once_each_for_its_reader(tmp_path: Path) -> None:
    shown = make_keys(tmp_path)
    people, prometheus = parse_key_lines((tmp_path / "api-keys").read_text().splitlines(), "api-keys")
    assert (people.name, people.scopes) == ("people", ALL_SCOPES)
    assert (prometheus.name, prometheus.scopes) == ("prometheus", frozenset({Scope.OBSERVE}))
    assert f"API key: {people.secret}\n" in shown
    assert prometheus.secret not in shown
    assert (tmp_path / "observe-key").read_text() == prometheus.secret
    assert len(people.secret) >= 64
    assert people.secret != prometheus.secret
    files = [path for path in tmp_path.iterdir() if path.is_file()]
    assert {path.name for path in files} == {"api-keys", "observe-key", "grafana-password"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o400}
    assert make_keys(tmp_path) == ""
    assert parse_key_lines((tmp_path / "api-keys").read_text().splitlines(), "api-keys")[0] == people


def test_the_table_of_backends_agrees_with_the_images() -> None:
    rows = re.findall(r"^\| [^|]+ \| [^|]+ \| `([^`]+)`[^|]* \| `([\w-]+)` \|$", README.read_text(), re.MULTILINE)
    shown = {target: options.split() for options, target in rows}
    targets = bake_targets()
    assert set(shown) == set(targets)
    for target, options in shown.items():
        # One's own build may name other GPUs than the image does.
        wanted = {option for option in options if not option.startswith("-DGPU_TARGETS")}
        assert wanted <= set(targets[target]["args"]["CMAKE_ARGS"].split()), target


def test_the_readme_names_files_that_exist() -> None:
    for name in set(re.findall(r"\bdeploy/[\w./-]+\w", README.read_text())):
        assert (DEPLOY.parent / name).exists(), name

from __future__ import annotations

from pathlib import Path

import pytest

from router.config.machine import (
    Machine,
    cgroup_folders,
    cpu_quota,
    gpu_device,
    installed_backends,
    memory_room,
    usable_memory,
    usable_threads,
)

GIB = 1 << 30


def test_the_machine_as_it_is() -> None:
    assert usable_threads() >= 1
    memory = usable_memory()
    assert memory is not None
    assert memory > 0
    assert installed_backends()[0] == "cpu"


@pytest.mark.parametrize(
    ("text", "cores"),
    [("max 100000", None), ("150000 100000", 2), ("200000 100000", 2), ("1000 100000", 1), ("x", None)],
)
def test_a_quota_is_whole_cores(text: str, cores: int | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert cpu_quota(tmp_path) == cores


def test_page_cache_counts_as_room(tmp_path: Path) -> None:
    assert memory_room(tmp_path) is None
    (tmp_path / "memory.max").write_text("max\n")
    assert memory_room(tmp_path) is None
    (tmp_path / "memory.max").write_text("1000\n")
    assert memory_room(tmp_path) == 1000
    (tmp_path / "memory.current").write_text("600\n")
    (tmp_path / "memory.stat").write_text("anon 100\ninactive_file 300\nactive_file 100\n")
    assert memory_room(tmp_path) == 800


def test_every_group_up_to_the_root_may_limit(tmp_path: Path) -> None:
    membership = tmp_path / "cgroup"
    membership.write_text("1:cpu:/old\n0::/system.slice/llamaherd.service\n")
    root = tmp_path / "fs"
    assert cgroup_folders(root, membership) == (
        root / "system.slice" / "llamaherd.service",
        root / "system.slice",
        root,
    )
    assert cgroup_folders(root, tmp_path / "missing") == ()


@pytest.mark.parametrize(("memory", "budget"), [(100 * GIB, 90 * GIB), (8 * GIB, 7 * GIB), (GIB, GIB // 2)])
def test_the_budget_leaves_a_reserve(memory: int, budget: int) -> None:
    assert Machine(1, memory).budget == (("host", budget),)


def test_without_a_reading_there_is_no_budget() -> None:
    assert Machine(1, None).budget == ()


def test_backends_are_found_by_the_engines_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("libggml.so", "libggml-base.so", "libggml-cpu-haswell.so", "libggml-cuda.so", "libllama.so"):
        (tmp_path / name).touch()
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    assert installed_backends() == ("cpu", "cuda")


def test_a_backend_without_its_device_is_no_gpu() -> None:
    assert gpu_device(("cpu",)) == ""
    assert gpu_device(("cpu", "metal")) == "MTL0"

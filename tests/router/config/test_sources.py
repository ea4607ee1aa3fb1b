from __future__ import annotations

from pathlib import Path

import pytest

from router.config.errors import ConfigError
from router.config.hub_cache import cache_folder, scan_hub_cache, tag_of
from router.config.sources import Found, scan_models_dir


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_a_folder_two_levels_deep(tmp_path: Path) -> None:
    touch(
        tmp_path / "plain.gguf",
        tmp_path / "mmproj-plain.gguf",
        tmp_path / "mtp-plain.gguf",
        tmp_path / "split-00001-of-00002.gguf",
        tmp_path / "split-00002-of-00002.gguf",
        tmp_path / "notes.txt",
        tmp_path / "seeing" / "model.gguf",
        tmp_path / "seeing" / "mmproj-F16.gguf",
        tmp_path / "seeing" / "mtp-model.gguf",
        tmp_path / "large" / "x-00001-of-00002.gguf",
        tmp_path / "large" / "x-00002-of-00002.gguf",
        tmp_path / "deep" / "er" / "model.gguf",
        tmp_path / "only-projector" / "mmproj.gguf",
    )
    assert scan_models_dir(tmp_path) == (
        Found("large", "models_dir", str(tmp_path / "large" / "x-00001-of-00002.gguf")),
        Found("plain", "models_dir", str(tmp_path / "plain.gguf")),
        Found(
            "seeing",
            "models_dir",
            str(tmp_path / "seeing" / "model.gguf"),
            str(tmp_path / "seeing" / "mmproj-F16.gguf"),
        ),
        Found("split", "models_dir", str(tmp_path / "split-00001-of-00002.gguf")),
    )


def test_broken_links_and_a_missing_folder(tmp_path: Path) -> None:
    (tmp_path / "gone.gguf").symlink_to(tmp_path / "nowhere")
    assert scan_models_dir(tmp_path) == ()
    with pytest.raises(ConfigError, match="No such file"):
        scan_models_dir(tmp_path / "missing")


@pytest.mark.parametrize(
    ("name", "tag"),
    [
        ("gemma-3-1b-it-Q4_K_M.gguf", "Q4_K_M"),
        ("gemma-3-1b-it-UD-q4_k_xl.gguf", "Q4_K_XL"),
        ("m.Q4_1.gguf", "Q4_1"),
        ("m-Q8_0-00001-of-00003.gguf", "Q8_0"),
        ("m.gguf", ""),
    ],
)
def test_the_tag_is_the_end_of_the_name(name: str, tag: str) -> None:
    assert tag_of(Path(name)) == tag


def snapshot(hub: Path, repository: str, commit: str, *names: str) -> Path:
    folder = hub / ("models--" + repository.replace("/", "--"))
    for name in names:
        blob = folder / "blobs" / f"{commit}-{name.replace('/', '-')}"
        touch(blob)
        link = folder / "snapshots" / commit / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    return folder


def test_models_of_the_hub_cache(tmp_path: Path) -> None:
    first = snapshot(
        tmp_path,
        "user/repo",
        "new",
        "m-Q4_K_M.gguf",
        "m-Q8_0.gguf",
        "mmproj-F16.gguf",
        "mmproj-F32.gguf",
        "mtp-m-Q4_K_M.gguf",
    )
    snapshot(tmp_path, "user/repo", "old", "m-Q2_K.gguf")
    touch(first / "refs" / "main")
    (first / "refs" / "main").write_text("new\n")
    snapshot(tmp_path, "user/big", "c", "Q4_K_M/b-Q4_K_M-00001-of-00002.gguf", "Q4_K_M/b-Q4_K_M-00002-of-00002.gguf")
    snapshot(tmp_path, "user/half", "c", "h-Q4_0-00001-of-00002.gguf")
    snapshot(tmp_path, "user/other", "c", "model.safetensors")
    touch(tmp_path / "models--user--repo.lock", tmp_path / "version.txt")
    found = {model.id: model for model in scan_hub_cache(tmp_path)}
    assert sorted(found) == ["user/big:Q4_K_M", "user/repo:Q4_K_M", "user/repo:Q8_0"]
    assert found["user/repo:Q4_K_M"].mmproj.endswith("/new/mmproj-F16.gguf")
    assert found["user/big:Q4_K_M"].source == "cache"


def test_a_file_whose_blob_is_still_being_fetched_is_not_listed(tmp_path: Path) -> None:
    folder = snapshot(tmp_path, "user/repo", "c", "m-Q4_0.gguf")
    for blob in (folder / "blobs").iterdir():
        blob.rename(blob.with_name(blob.name + ".incomplete"))
    assert scan_hub_cache(tmp_path) == ()


def test_without_a_branch_the_newest_snapshot_counts_and_no_cache_holds_nothing(tmp_path: Path) -> None:
    snapshot(tmp_path, "user/repo", "c", "m-Q4_0.gguf")
    assert [model.id for model in scan_hub_cache(tmp_path)] == ["user/repo:Q4_0"]
    assert scan_hub_cache(tmp_path / "missing") == ()


def test_the_folder_follows_the_hubs_variables() -> None:
    assert cache_folder({"HF_HUB_CACHE": "/a", "HF_HOME": "/b"}) == Path("/a")
    assert cache_folder({"HF_HOME": "/b"}) == Path("/b/hub")
    assert cache_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/huggingface/hub")

"""Which files a reference means, by their names alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from downloader import names
from downloader.faults import DownloadFault
from downloader.reference import parse_reference
from downloader.resolver import Entry, Listing, resolve
from protocol.download import DownloadChoice, FileRole, Plan
from protocol.errors import ErrorKind
from router.config import hub_cache

REPO = "user/repo"


def plan(reference: str, *paths: str, **choice: str) -> Plan:
    entries = tuple(Entry(path, 100 + index, f"{index:064d}") for index, path in enumerate(paths))
    listing = Listing(REPO, "c" * 40, entries)
    return resolve(parse_reference(reference), DownloadChoice(reference, **choice), listing)


def fetched(reference: str, *paths: str, **choice: str) -> list[str]:
    return [file.path for file in plan(reference, *paths, **choice).files]


def fault(reference: str, *paths: str, **choice: str) -> DownloadFault:
    with pytest.raises(DownloadFault) as caught:
        plan(reference, *paths, **choice)
    return caught.value


def test_without_a_quantization_the_usual_one_is_taken() -> None:
    files = ("m-BF16.gguf", "m-Q8_0.gguf", "m-Q4_K_M.gguf")
    assert fetched(REPO, *files) == ["m-Q4_K_M.gguf"]
    assert fetched(REPO, *files[:2]) == ["m-Q8_0.gguf"]
    assert fetched(REPO, "b-IQ2_XS.gguf", "a-IQ1_S.gguf") == ["a-IQ1_S.gguf"]


@pytest.mark.parametrize("quant", ["Q8_0", "q8_0"])
def test_a_quantization_in_any_case(quant: str) -> None:
    assert fetched(f"{REPO}:{quant}", "m-q4_k_m.gguf", "m-q8_0.gguf") == ["m-q8_0.gguf"]


def test_a_label_is_not_part_of_another() -> None:
    files = ("m-IQ4_XS.gguf", "m-Q4_K_S.gguf", "m-Q4_K_M.gguf", "m-Q4_0.gguf", "m-BF16.gguf", "m-F16.gguf")
    for path in files:
        assert fetched(f"{REPO}:{names.quant_of(path)}", *files) == [path]
    assert fault(f"{REPO}:Q4", *files).kind is ErrorKind.NOT_FOUND


def test_dynamic_quantizations() -> None:
    files = ("m-UD-Q4_K_XL.gguf", "m-Q4_K_M.gguf")
    assert fetched(f"{REPO}:UD-Q4_K_XL", *files) == ["m-UD-Q4_K_XL.gguf"]
    assert fetched(f"{REPO}:Q4_K_XL", *files) == ["m-UD-Q4_K_XL.gguf"]
    assert fetched(f"{REPO}:Q4_K_M", "m-UD-Q4_K_M.gguf", "m-Q4_K_M.gguf") == ["m-Q4_K_M.gguf"]


def test_a_folder_may_carry_the_quantization() -> None:
    files = ("Q8_0/model.gguf", "Q4_K_M/model.gguf")
    assert fetched(f"{REPO}:Q8_0", *files) == ["Q8_0/model.gguf"]


def test_a_wrong_quantization_is_answered_with_those_that_exist() -> None:
    error = fault(f"{REPO}:Q3_K", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-F16.gguf")
    assert error.kind is ErrorKind.NOT_FOUND
    assert "Q4_K_M, Q8_0" in error.message
    assert "F16" not in error.message


def test_shards_come_together_and_in_order() -> None:
    shards = [f"big/m-Q8_0-{index:05d}-of-00012.gguf" for index in range(1, 13)]
    assert fetched(f"{REPO}:Q8_0", *reversed(shards), "m-Q4_K_M.gguf") == shards
    assert fetched(f"{REPO}/{shards[4]}", *shards) == shards
    assert plan(f"{REPO}:Q8_0", *shards).model == f"{REPO}:Q8_0"
    error = fault(f"{REPO}:Q8_0", *shards[:5], *shards[6:])
    assert "lacks 1 of 12 shards" in error.message


def test_a_file_by_name() -> None:
    assert fetched(f"{REPO}/sub/x.gguf", "sub/x.gguf", "y.gguf") == ["sub/x.gguf"]
    assert fetched(f"{REPO}/SUB/X.gguf", "sub/x.gguf", "y.gguf") == ["sub/x.gguf"]
    assert "sub/x.gguf" in fault(f"{REPO}/z.gguf", "sub/x.gguf").message


def test_names_that_differ_in_case_must_be_spelled_exactly() -> None:
    assert fetched(f"{REPO}/Model.gguf", "Model.gguf", "model.gguf") == ["Model.gguf"]
    error = fault(f"{REPO}/MODEL.gguf", "Model.gguf", "model.gguf")
    assert error.kind is ErrorKind.INVALID_REQUEST
    assert "Model.gguf, model.gguf" in error.message


def test_the_best_projector_comes_along() -> None:
    files = ("m-Q4_K_M.gguf", "mmproj-F32.gguf", "mmproj-Q8_0.gguf", "mmproj-F16.gguf")
    chosen = plan(REPO, *files)
    assert [(file.path, file.role) for file in chosen.files] == [
        ("m-Q4_K_M.gguf", FileRole.MODEL),
        ("mmproj-Q8_0.gguf", FileRole.PROJECTOR),
    ]
    assert [file.path for file in chosen.optional] == ["mmproj-F16.gguf", "mmproj-F32.gguf"]
    assert fetched(REPO, "a/m-F16.gguf", "mmproj-F16.gguf", "a/mmproj-F32.gguf") == [
        "a/m-F16.gguf",
        "a/mmproj-F32.gguf",
    ]


def test_the_projector_is_the_users_choice() -> None:
    files = ("m-Q4_K_M.gguf", "mmproj-F32.gguf", "mmproj-F16.gguf")
    assert fetched(REPO, *files, projector="none") == ["m-Q4_K_M.gguf"]
    assert fetched(REPO, *files, projector="mmproj-F32.gguf")[1] == "mmproj-F32.gguf"
    assert fetched(REPO, *files, projector="f16")[1] == "mmproj-F16.gguf"
    assert "mmproj-F16.gguf" in fault(REPO, *files, projector="mmproj-Q1.gguf").message


def test_drafts_come_when_asked_for() -> None:
    files = ("m-Q4_K_M.gguf", "mtp-m-Q4_K_M.gguf", "mtp-m-Q8_0.gguf")
    assert fetched(REPO, *files) == ["m-Q4_K_M.gguf"]
    assert fetched(REPO, *files, draft="auto") == ["m-Q4_K_M.gguf", "mtp-m-Q4_K_M.gguf"]
    assert fetched(REPO, *files, draft="mtp-m-Q8_0.gguf")[1] == "mtp-m-Q8_0.gguf"


def test_a_repository_without_models() -> None:
    assert "no GGUF" in fault(REPO, "README.md", "model.safetensors").message
    assert "no model" in fault(REPO, "mmproj-F16.gguf").message


def test_a_repository_of_500_files() -> None:
    files = [f"v{index:03d}/m{index:03d}-Q4_K_M.gguf" for index in range(500)]
    assert len(fetched(REPO, *files)) == 1
    assert len(fault(f"{REPO}:Q9_9", *[f"m-Q{index}_0.gguf" for index in range(500)]).message) < 400


@pytest.mark.parametrize("path", ["../x-Q4_K_M.gguf", "/x-Q4_K_M.gguf", "a/../../x.gguf", "a\\..\\x.gguf", "a//x.gguf"])
def test_a_hub_that_lists_tricks_is_not_followed(path: str) -> None:
    assert fault(REPO, "m-Q8_0.gguf", path).kind is ErrorKind.INVALID_REQUEST


@pytest.mark.parametrize(
    "name",
    [
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "m-UD-Q4_K_XL.gguf",
        "plain.gguf",
        "m-Q8_0-00001-of-00003.gguf",
        "m-q4_k_m.gguf",
    ],
)
def test_the_planned_id_is_the_one_that_the_cache_is_listed_by(name: str) -> None:
    tag = hub_cache.tag_of(Path(name))
    assert names.model_id(REPO, name) == (f"{REPO}:{tag}" if tag else REPO)

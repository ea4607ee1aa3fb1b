from __future__ import annotations

import msgspec
import pytest

from protocol.load import AdapterSpec, DraftSpec, LoadParameters, WorkerSettings
from router.config.facts import Identity
from router.config.load_key import KEY_DIGITS, files_of, load_key

FILE = Identity(1, 2, 3, 4)
PARAMETERS = LoadParameters("/models/m.gguf")
FILES = (("/models/m.gguf", FILE),)


def key(
    parameters: LoadParameters = PARAMETERS,
    worker: WorkerSettings = WorkerSettings(),
    environment: tuple[tuple[str, str], ...] = (),
    files: tuple[tuple[str, Identity], ...] = FILES,
) -> str:
    return load_key(parameters, worker, environment, files)


def test_the_same_matter_has_the_same_key() -> None:
    assert key() == key()
    assert len(key()) == KEY_DIGITS


def test_two_paths_to_one_file_are_one_model() -> None:
    other = LoadParameters("/elsewhere/link.gguf")
    assert key(other, files=(("/elsewhere/link.gguf", FILE),)) == key()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("ctx_size", 4096),
        ("slots", 8),
        ("batch_size", 512),
        ("n_gpu_layers", 3),
        ("devices", ("CUDA1",)),
        ("override_tensor", ("exps=CPU",)),
        ("flash_attn", "off"),
        ("cache_type_k", "q8_0"),
        ("mmap", False),
        ("rope_freq_base", 1e6),
        ("pooling", "rank"),
        ("adapters", (AdapterSpec("/a.gguf", 0.5),)),
        ("draft", DraftSpec(kind="lookup")),
        ("override_kv", ("a=int:1",)),
        ("rpc", ("host:1",)),
    ],
)
def test_every_load_parameter_counts(field: str, value: object) -> None:
    assert key(msgspec.structs.replace(PARAMETERS, **{field: value})) != key()


@pytest.mark.parametrize(
    "changed", [Identity(9, 2, 3, 4), Identity(1, 9, 3, 4), Identity(1, 2, 9, 4), Identity(1, 2, 3, 9)]
)
def test_another_file_or_other_contents_are_another_model(changed: Identity) -> None:
    assert key(files=(("/models/m.gguf", changed),)) != key()


def test_the_environment_and_what_a_worker_reads_at_its_start_count() -> None:
    assert key(environment=(("GGML_CUDA_X", "1"),)) != key()
    assert key(worker=WorkerSettings(threads=3)) != key()


def test_all_files_of_a_worker_are_known() -> None:
    parameters = msgspec.structs.replace(
        PARAMETERS,
        mmproj_path="/p.gguf",
        adapters=(AdapterSpec("/a.gguf"),),
        control_vectors=(AdapterSpec("/c.gguf"),),
        draft=DraftSpec(kind="model", model_path="/d.gguf"),
    )
    assert files_of(parameters) == ("/models/m.gguf", "/p.gguf", "/a.gguf", "/c.gguf", "/d.gguf")

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from router.config.errors import BadHeader
from router.config.header import MAX_ENTRIES, MAX_TENSORS, WINDOW_BYTES, read_header
from tests.factory import language_model
from tests.router.config import gguf_bytes as g


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    entries = [
        g.string("general.architecture", "llama"),
        g.u32("llama.block_count", 2),
        g.f32("general.sampling.temp", 0.5),
        g.flag("llama.attention.causal", True),
        g.strings("tokenizer.ggml.tokens", ["a", "bc", "déf"]),
        g.array("llama.attention.head_count_kv", g.INT32, 2, struct.pack("<ii", 4, 0)),
    ]
    tensors = [g.tensor("token_embd.weight", [64, 3]), g.tensor("blk.0.ffn_up.weight", [64, 4], g.Q4_0)]
    return g.write(tmp_path / "sound.gguf", g.header(entries, tensors), 64 * 3 * 4 + 64 * 4 // 32 * 18)


def test_a_sound_header_is_read_and_arrays_that_nobody_wants_are_skipped(sound: Path) -> None:
    header = read_header(sound, lambda key: not key.startswith("tokenizer."))
    assert header.version == 3
    assert header.metadata == {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "general.sampling.temp": 0.5,
        "llama.attention.causal": True,
        "llama.attention.head_count_kv": (4, 0),
    }
    assert header.array_lengths == {"tokenizer.ggml.tokens": 3, "llama.attention.head_count_kv": 2}
    assert [(tensor.name, tensor.elements, tensor.size) for tensor in header.tensors] == [
        ("token_embd.weight", 192, 768),
        ("blk.0.ffn_up.weight", 256, 144),
    ]
    assert header.data_offset % 32 == 0


def test_a_file_of_the_factory_is_read_like_the_gguf_package_reads_it(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = language_model(tmp_path / "tiny.gguf")
    header = read_header(path)
    reader = gguf.GGUFReader(path)
    assert {tensor.name: tensor.size for tensor in header.tensors} == {
        tensor.name: tensor.n_bytes for tensor in reader.tensors
    }
    assert header.data_offset == reader.data_offset
    assert set(header.metadata) | set(header.array_lengths) == {
        key for key in reader.fields if not key.startswith("GGUF.")
    }


def test_strings_longer_than_the_read_window_are_skipped(tmp_path: Path) -> None:
    words = ["x" * (WINDOW_BYTES + 7), "y", "z" * (WINDOW_BYTES - 8), ""] * 2
    data = g.header([g.strings("tokenizer.ggml.tokens", words), g.u32("after", 7)])
    header = read_header(g.write(tmp_path / "long.gguf", data), lambda key: False)
    assert header.metadata == {"after": 7}
    assert header.array_lengths == {"tokenizer.ggml.tokens": len(words)}


def test_an_array_too_long_to_keep_is_skipped(tmp_path: Path) -> None:
    data = g.header([g.array("numbers", g.UINT32, 5_000, bytes(20_000)), g.u32("after", 7)])
    assert read_header(g.write(tmp_path / "x.gguf", data)).metadata == {"after": 7}


HOSTILE = {
    "no GGUF": (b"<!DOCTYPE html>" * 10, "not a GGUF file"),
    "an empty file": (b"", "truncated"),
    "half a magic": (b"GG", "truncated"),
    "the first version": (g.header([], version=1), "version 1"),
    "a later version": (g.header([], version=9), "version 9"),
    "the other byte order": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "more tensors than any": (g.header([], n_tensors=MAX_TENSORS + 1), "claims"),
    "more entries than any": (g.header([], n_entries=MAX_ENTRIES + 1), "claims"),
    "more entries than there are": (g.header([g.u32("a", 1)], n_entries=2), "truncated"),
    "more tensors than there are": (g.header([], n_tensors=1), "truncated"),
    "an endless key": (g.header([struct.pack("<Q", 1 << 60) + b"a"]), "length"),
    "an empty key": (g.header([g.text("") + struct.pack("<II", 4, 1)]), "empty"),
    "a key twice": (g.header([g.u32("a", 1), g.u32("a", 2)]), "twice"),
    "an endless string": (g.header([g.text("a") + struct.pack("<IQ", g.STRING, 1 << 62)]), "length"),
    "a string beyond the end": (g.header([g.text("a") + struct.pack("<IQ", g.STRING, 1_000)]), "truncated"),
    "an unknown type": (g.header([g.text("a") + struct.pack("<I", 99)]), "unknown type 99"),
    "an endless array": (g.header([g.array("a", g.UINT64, 1 << 61, b"")]), "truncated"),
    "endless strings": (g.header([g.array("a", g.STRING, 1_025, struct.pack("<Q", 1 << 63) * 1_025)]), "truncated"),
    "more strings than any vocabulary": (g.header([g.array("a", g.STRING, 1 << 40, b"")]), "claims"),
    "nested arrays": (g.header([g.array("a", g.ARRAY, 1, struct.pack("<IQ", g.ARRAY, 1) * 9)]), "unsupported type"),
    "a tensor of many dimensions": (g.header([], [g.tensor("t", [1] * 5)]), "5 dimensions"),
    "a tensor beyond all memory": (g.header([], [g.tensor("t", [1 << 40, 1 << 40])]), "more elements"),
    "a tensor of an unknown type": (g.header([], [g.tensor("t", [32], 77)]), "unknown type 77"),
    "tensors that are not there": (g.header([], [g.tensor("t", [1 << 20])]), "tensors take 4194304 bytes"),
    "an odd alignment": (g.header([g.u32("general.alignment", 33)]), "power of two"),
    "no alignment": (g.header([g.u32("general.alignment", 0)]), "power of two"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    data, reason = HOSTILE[name]
    path = tmp_path / "hostile.gguf"
    path.write_bytes(data)
    with pytest.raises(BadHeader, match=reason):
        read_header(path)


def test_many_strings_in_a_sparse_file_cost_little(tmp_path: Path) -> None:
    """A few kilobytes on disk that claim 2^40 empty strings must not keep the reader busy."""
    path = tmp_path / "sparse.gguf"
    path.write_bytes(g.header([g.array("a", g.STRING, 1 << 40, b"")]))
    os.truncate(path, 1 << 43)
    with pytest.raises(BadHeader, match="claims"):
        read_header(path)


def test_a_folder_or_a_pipe_is_not_a_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    for path in (tmp_path / "pipe.gguf", tmp_path):
        with pytest.raises(BadHeader, match="not a regular file"):
            read_header(path)


def test_truncations_of_a_file_are_noticed(sound: Path, tmp_path: Path) -> None:
    data = sound.read_bytes()
    cut = tmp_path / "cut.gguf"
    for length in range(0, len(data), 5):
        cut.write_bytes(data[:length])
        with pytest.raises(BadHeader):
            read_header(cut)


def test_random_damage_never_gives_anything_but_a_header_or_a_reason(sound: Path, tmp_path: Path) -> None:
    original = sound.read_bytes()
    damaged = tmp_path / "damaged.gguf"
    chance = random.Random(1)
    refused = 0
    for _ in range(400):
        data = bytearray(original)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        damaged.write_bytes(data)
        try:
            read_header(damaged)
        except BadHeader:
            refused += 1
    assert refused > 100

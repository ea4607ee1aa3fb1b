from __future__ import annotations

import random
from pathlib import Path

import pytest

from router.config.errors import ConfigError
from router.config.presets import PresetFile, Section, parse_presets, read_presets


def section(file: PresetFile, name: str) -> Section:
    return next(found for found in file.sections if found.name == name)


def values(found: Section) -> dict[str, object]:
    return {item.option.field: item.value for item in found.assignments}


def test_a_file_as_llama_server_reads_it() -> None:
    file = parse_presets(
        """
        version = 1
        ; a comment
        [*]   ; for all
        c = 4096
        LLAMA_ARG_CACHE_TYPE_K = q8_0

        [ggml-org/gemma-3-1b-it-GGUF:Q4_K_M]
        temp = 0.5            # warm
        no-mmap = true
        load-on-startup = true

        [custom]\r
        model = /models/a#b;c.gguf\r
        alias = one, two
        samplers = penalties;top_k
        stop-timeout = 5
        """
    )
    assert file.warnings == ()
    assert values(file.everywhere) == {"ctx_size": 4096, "cache_type_k": "q8_0"}
    first, second = file.sections
    assert first.name == "ggml-org/gemma-3-1b-it-GGUF:Q4_K_M"
    assert values(first) == {"temperature": 0.5, "mmap": False, "load_on_startup": True}
    assert values(second) == {
        "model": "/models/a#b;c.gguf",
        "alias": ("one", "two"),
        "samplers": ("penalties", "top_k"),
        "stop_timeout": 5.0,
    }
    assert second.assignments[0].origin == "[custom] line 14"
    assert not first.error
    assert not second.error


def test_keys_before_the_first_section_make_no_phantom() -> None:
    file = parse_presets("ctx-size = 1\n[a]\nmodel = /m.gguf\n")
    assert [found.name for found in file.sections] == ["a"]
    assert "[*]" in file.warnings[0]


def test_our_own_keys() -> None:
    file = parse_presets(
        """
        [a]
        pin = on
        priority = -3
        hidden = 1
        home = true
        prewarm = on
        max-memory = 2G
        recycle-after = 100
        sleep-idle-seconds = 5m
        unload-idle-seconds = 1h
        env.GGML_CUDA_NO_PINNED = 1
        """
    )
    found = section(file, "a")
    assert not found.error
    assert values(found) == {
        "pin": True,
        "priority": -3,
        "hidden": True,
        "home": True,
        "prewarm": True,
        "max_memory": 2 << 30,
        "recycle_after": 100,
        "sleep_idle": 300.0,
        "unload_idle": 3600.0,
    }
    assert found.environment == (("GGML_CUDA_NO_PINNED", "1"),)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ctx-sizes = 1", "did you mean 'ctx-size'"),
        ("ctx-size = many", "not a whole number"),
        ("host = 0.0.0.0", "setting of the gateway"),
        ("port = 1", "setting of the gateway"),
        ("api-key = x", "setting of the gateway"),
        ("ssl-key-file = x", "setting of the gateway"),
        ("hf-token = x", "setting of the gateway"),
        ("models-max = 3", "setting of the gateway"),
        ("env.LD_PRELOAD = x", "LD_PRELOAD"),
        ("env.PYTHONPATH = x", "PYTHONPATH"),
        ("env.ld_library_path = x", "ld_library_path"),
        ("env.A-B = x", "name of a variable"),
        ("numa = distribute", "numactl"),
        ("no-jinja = true", "always Jinja"),
        ("chat-template-file = /does/not/exist", "cannot read"),
        ("temp = 1\ntemperature = 2", "set twice"),
    ],
)
def test_a_mistake_fails_its_own_section_and_no_other(line: str, reason: str) -> None:
    file = parse_presets(f"[bad]\nmodel = /m.gguf\n{line}\n[good]\nmodel = /m.gguf\n")
    assert reason in section(file, "bad").error
    assert "line 3" in section(file, "bad").error or "line 4" in section(file, "bad").error
    assert not section(file, "good").error


@pytest.mark.parametrize("line", ["ctx-sizes = 1", "port = 1", "model = /m.gguf", "alias = x", "ctx-size = many"])
def test_a_mistake_for_all_fails_the_file(line: str) -> None:
    with pytest.raises(ConfigError, match=r"\[\*\]"):
        parse_presets(f"[*]\n{line}\n[a]\nmodel = /m.gguf")


@pytest.mark.parametrize("text", ["[a", "just words", "[]", "= 3", "[a]\n[b] junk", "[a]\nmodel = /m\0.gguf"])
def test_what_is_no_preset_file_fails_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"p\.ini:\d"):
        parse_presets(text, "p.ini")


def test_a_section_that_appears_twice_is_ambiguous() -> None:
    file = parse_presets("[a]\nmodel = /m.gguf\n[b]\nmodel = /m.gguf\n[a]\nmodel = /n.gguf\n")
    assert [found.name for found in file.sections] == ["a", "b"]
    assert "lines 1 and 5" in section(file, "a").error


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_presets(tmp_path / "missing.ini")
    (tmp_path / "latin.ini").write_bytes("[caf\xe9]".encode("latin-1"))
    with pytest.raises(ConfigError, match="UTF-8"):
        read_presets(tmp_path / "latin.ini")


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "p.ini").write_bytes(b"\xef\xbb\xbf[a]\nmodel = /m.gguf\n")
    assert read_presets(tmp_path / "p.ini").sections[0].name == "a"


def test_no_text_gives_anything_but_presets_or_a_reason() -> None:
    """Random lines of the alphabet that files are made of, damaged or not."""
    chance = random.Random(7)
    parts = [
        "[",
        "]",
        "*",
        "a",
        "model",
        "=",
        " = ",
        "ctx-size",
        "4096",
        "env.",
        "A",
        ";",
        "#",
        " ",
        "\t",
        "\\",
        "\x00",
        "é",
        "no-mmap",
        "on",
    ]
    understood = 0
    for _ in range(3_000):
        lines = ("".join(chance.choices(parts, k=chance.randint(0, 6))) for _ in range(chance.randint(0, 5)))
        try:
            file = parse_presets("\n".join(lines))
        except ConfigError:
            continue
        understood += 1
        assert all(found.name for found in file.sections)
    assert understood > 100

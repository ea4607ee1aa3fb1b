"""The table of options, the values they take, and how they are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from protocol.load import DraftSpec, LoadParameters, WorkerSettings
from protocol.sampling import SamplingParameters
from router.config import load_values as lv
from router.config import request_values as rv
from router.config import values as v
from router.config.errors import BadValue
from router.config.flags import OPTIONS
from router.config.lookup import assign, from_environment, nearest_flag, nearest_key
from router.config.option import Option, Target
from router.config.settings import Settings
from router.config.traits import RequestDefaults, Traits

STRUCTS = {
    Target.SERVER: Settings,
    Target.LOAD: LoadParameters,
    Target.DRAFT: DraftSpec,
    Target.WORKER: WorkerSettings,
    Target.SAMPLING: SamplingParameters,
    Target.REQUEST: RequestDefaults,
    Target.MODEL: Traits,
}
DERIVED = {"load_mode", "lora_unapplied", "mmproj_auto"}
"""Fields that are worked into others."""


@pytest.mark.parametrize("option", [option for option in OPTIONS if option.target in STRUCTS], ids=lambda o: o.name)
def test_every_option_fills_a_field_that_exists(option: Option) -> None:
    assert option.field in STRUCTS[option.target].__struct_fields__ or option.field in DERIVED
    assert option.help


@pytest.mark.parametrize(
    "option", [o for o in OPTIONS if o.target in (Target.IGNORED, Target.REFUSED)], ids=lambda o: o.name
)
def test_every_option_without_effect_says_why(option: Option) -> None:
    assert option.reason


def test_no_spelling_and_no_variable_means_two_options() -> None:
    flags = Counter(flag for option in OPTIONS for flag in (*option.flags, *option.off))
    variables = Counter(name for option in OPTIONS for name in (option.own_env, option.env) if name)
    assert [flag for flag, count in flags.items() if count > 1] == []
    assert [name for name, count in variables.items() if count > 1] == []
    keys = Counter(key for o in OPTIONS for key in {flag.lstrip("-") for flag in (*o.flags, *o.off)})
    assert [key for key, count in keys.items() if count > 1] == []


GOOD: list[tuple[Callable[[str], object], str, object]] = [
    (v.boolean, "on", True),
    (v.boolean, "Enabled", True),
    (v.boolean, "0", False),
    (v.size, "8G", 8 << 30),
    (v.size, "1.5 MiB", 3 << 19),
    (v.size, "0", 0),
    (v.duration, "250ms", 0.25),
    (v.duration, "5m", 300.0),
    (v.duration, "2", 2.0),
    (v.duration_or_auto, "auto", None),
    (v.idle, "-1", 0.0),
    (v.budget, "auto", None),
    (v.budget, "8G", (("host", 8 << 30),)),
    (v.budget, "host=1G, CUDA0=2G", (("host", 1 << 30), ("CUDA0", 2 << 30))),
    (lv.slots, "-1", 4),
    (lv.threads, "auto", 0),
    (lv.gpu_layers, "auto", -1),
    (lv.gpu_layers, "all", lv.ALL_LAYERS),
    (lv.gpu_layers, "17", 17),
    (lv.flash_attention, "1", "on"),
    (lv.flash_attention, "auto", "auto"),
    (lv.cache_type, "Q8_0", "q8_0"),
    (lv.fractions, "3,1", (3.0, 1.0)),
    (lv.rope_scale, "4", 0.25),
    (lv.tensor_overrides, r"blk\.1=CPU, exps=CUDA0", (r"blk\.1=CPU", "exps=CUDA0")),
    (lv.kv_overrides, "a.b=bool:false", ("a.b=bool:false",)),
    (rv.samplers, "penalties;top-k;temp", ("penalties", "top_k", "temperature")),
    (rv.sampler_letters, "edkt", ("penalties", "dry", "top_k", "temperature")),
    (rv.seed, "-1", None),
    (rv.seed, "42", 42),
    (rv.logit_bias, "15043+1,2-inf", ((15043, 1.0), (2, float("-inf")))),
    (v.json_object, '{"a": [1]}', b'{"a":[1]}'),
    (rv.thinking, "auto", None),
    (rv.thinking, "off", False),
    (lv.speculation, "none", "off"),
    (lv.speculation, "ngram-mod", "lookup"),
    (lv.speculation, "draft-simple", "model"),
    (lv.load_mode, "mmap+mlock", (True, True)),
    (rv.sequence_breaker, "none", ()),
    (rv.sequence_breaker, "\\n", ("\n",)),
]


@pytest.mark.parametrize(("parse", "text", "value"), GOOD)
def test_values(parse: Callable[[str], object], text: str, value: object) -> None:
    assert parse(text) == value


BAD: list[tuple[Callable[[str], object], str]] = [
    (v.boolean, "perhaps"),
    (v.integer(0), "-1"),
    (v.integer(0, 5), "6"),
    (v.integer(), "1.5"),
    (v.number(0, 1), "2"),
    (v.number(), "nan"),
    (v.size, "-8G"),
    (v.size, "8X"),
    (v.duration, "soon"),
    (v.budget, "host=1G,2G"),
    (lv.slots, "0"),
    (lv.gpu_layers, "some"),
    (lv.cache_type, "q2_k"),
    (v.path, ""),
    (v.path, "a\0b"),
    (v.file_text, "/does/not/exist"),
    (lv.rope_scale, "0"),
    (lv.tensor_overrides, "exps"),
    (lv.kv_overrides, "a=b"),
    (lv.kv_overrides, "a=list:1"),
    (lv.scaled_adapters, "file"),
    (rv.samplers, "top_z"),
    (rv.sampler_letters, "q"),
    (rv.logit_bias, "hello+1"),
    (v.json_object, "[1]"),
    (v.json_object, "{"),
    (rv.chat_template, "chatml"),
    (lv.speculation, "draft-eagle3"),
    (lv.speculation, "draft-simple,ngram-mod"),
    (lv.load_mode, "dio"),
    (v.secrets, " , "),
    (v.word_choice("dir"), "dir,attic"),
]


@pytest.mark.parametrize(("parse", "text"), BAD)
def test_bad_values_are_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(BadValue):
        parse(text)


@pytest.mark.parametrize(
    ("key", "text", "field", "value"),
    [
        ("c", "4096", "ctx_size", 4096),
        ("ctx-size", "4096", "ctx_size", 4096),
        ("LLAMA_ARG_CTX_SIZE", "4096", "ctx_size", 4096),
        ("LLAMAHERD_CTX_SIZE", "4096", "ctx_size", 4096),
        ("ngl", "all", "n_gpu_layers", lv.ALL_LAYERS),
        ("gpu-layers", "3", "n_gpu_layers", 3),
        ("no-mmap", "true", "mmap", False),
        ("no-mmap", "off", "mmap", True),
        ("mmap", "off", "mmap", False),
        ("temp", "0", "temperature", 0.0),
        ("temperature", "0", "temperature", 0.0),
    ],
)
def test_a_key_may_be_short_long_negated_or_a_variable(key: str, text: str, field: str, value: object) -> None:
    item = assign(key, text, "here")
    assert item is not None
    assert (item.option.field, item.value, item.origin) == (field, value, "here")


def test_unknown_names_are_answered_with_the_nearest() -> None:
    assert assign("ctx-sizes", "1", "") is None
    assert nearest_key("ctx-sizes") == "ctx-size"
    assert nearest_key("load-on-start") == "load-on-startup"
    assert nearest_key("zzzzzz") == ""
    assert nearest_flag("--model-dir") == "--models-dir"


def test_our_variable_wins_over_llama_servers() -> None:
    found = from_environment({"LLAMA_ARG_PORT": "1", "LLAMAHERD_PORT": "2", "LLAMA_ARG_NO_MMAP": "1", "OTHER": "x"})
    assert [(item.option.name, item.value, item.origin) for item in found] == [
        ("port", 2, "LLAMAHERD_PORT"),
        ("mmap", False, "LLAMA_ARG_NO_MMAP"),
    ]


def test_preset_only_options_are_not_taken_from_the_environment() -> None:
    assert from_environment({"LLAMAHERD_PIN": "on"}) == ()


def test_secrets_are_not_shown() -> None:
    item = assign("api-key", "sk-very-secret", "--api-key")
    assert item is not None
    assert "secret" not in item.text
    assert "sk-very" not in repr(Settings(api_keys=("sk-very-secret",), hf_token="sk-very-secret"))


@pytest.mark.parametrize(("text", "expected"), [("-1", -1), ("0", 0), ("64", 64 << 20)])
def test_memory_for_prefixes_is_given_in_mebibytes(text: str, expected: int) -> None:
    assert lv.cache_ram(text) == expected


@pytest.mark.parametrize("text", ["", "3", "0 2", "5 2", "1 2 3", "a b"])
def test_a_range_of_layers_has_a_first_and_a_last(text: str) -> None:
    assert lv.layer_range("2 5") == lv.layer_range("2,5") == (2, 5)
    with pytest.raises(BadValue):
        lv.layer_range(text)

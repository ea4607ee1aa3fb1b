"""Ranges and names of sampling parameters."""

from __future__ import annotations

import math

import msgspec
import pytest

from protocol.sampling import SamplingParameters
from worker.prompt.errors import PromptError
from worker.sampling_rules import MAX_BIASES, check_sampling, sampler_name, token_biases


def test_the_defaults_are_good() -> None:
    check_sampling(SamplingParameters())
    check_sampling(SamplingParameters(temperature=-1, top_k=-5, top_n_sigma=-1, repeat_last_n=-1, seed=2**32 - 1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", math.nan),
        ("temperature", 1e9),
        ("top_p", 1.5),
        ("top_p", -0.1),
        ("min_p", 2),
        ("typical_p", math.inf),
        ("xtc_probability", 7),
        ("dynatemp_range", -1),
        ("repeat_last_n", -2),
        ("repeat_penalty", 0),
        ("dry_penalty_last_n", -2),
        ("dry_sequence_breakers", ("",)),
        ("dry_sequence_breakers", ("x",) * 100),
        ("mirostat", 3),
        ("adaptive_decay", 1),
        ("min_keep", -1),
        ("n_probs", 10**6),
        ("seed", -1),
        ("seed", 2**32),
        ("samplers", ("top_k", "magic")),
        ("logit_bias", ((1, math.nan),)),
        ("logit_bias", ((1, 1.0),) * (MAX_BIASES + 1)),
    ],
)
def test_a_value_out_of_range_is_named(name: str, value: object) -> None:
    with pytest.raises(PromptError) as refused:
        check_sampling(msgspec.structs.replace(SamplingParameters(), **{name: value}))
    assert refused.value.error.param == name


def test_samplers_have_many_spellings() -> None:
    spellings = {"top-k": "top_k", "topk": "top_k", "TOP_P": "top_p", "nucleus": "top_p", "temp": "temperature"}
    assert {spelling: sampler_name(spelling) for spelling in spellings} == spellings
    assert sampler_name("typ-p") == "typ_p"


def test_biases_of_texts_go_to_all_their_tokens() -> None:
    biases = token_biases(((3, 1.0), ("ab", -math.inf), (3, 0.5)), 256, lambda text: list(text.encode()))
    assert biases == {3: 1.5, 97: -math.inf, 98: -math.inf}


def test_a_bias_on_a_token_that_does_not_exist_is_refused() -> None:
    with pytest.raises(PromptError, match="256"):
        token_biases(((256, 1.0),), 256, lambda text: [])

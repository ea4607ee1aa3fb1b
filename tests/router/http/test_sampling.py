"""Every sampling field: its range, its limits, and the place where it arrives."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from protocol.sampling import DEFAULT_SAMPLERS, Grammar, JsonSchema, SamplingParameters
from router.http.decoding import decode
from router.http.errors import ApiError
from router.http.fields import SamplingFields
from router.http.sampling import sampling

DECODER = msgspec.json.Decoder(SamplingFields)
BASE = SamplingParameters(temperature=0.1, top_k=7)


def chosen(**fields: Any) -> SamplingParameters:
    return sampling(decode(DECODER, msgspec.json.encode(fields)), BASE, 0)


def test_what_is_absent_or_null_stays_as_the_model_has_it() -> None:
    assert chosen() == BASE
    assert chosen(temperature=None, top_k=None, seed=None, json_schema=None, grammar="") == BASE


def test_every_parameter_but_the_internal_ones_can_be_chosen() -> None:
    names = {name for name in SamplingParameters.__struct_fields__ if name not in ("constraint", "n_probs")}
    assert names - set(SamplingFields.__struct_fields__) == set()


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
        ("temperature", -1, 0.0),
        ("temperature", 9, 9.0),
        ("top_p", 1, 1.0),
        ("mirostat", 2, 2),
        ("adaptive_target", -3, -3.0),
        ("top_k", -1, 0),
        ("typical_p", 3, 3.0),
        ("dry_base", 0.5, 1.75),
        ("dry_base", 2, 2.0),
        ("seed", -1, None),
        ("seed", 4294967295, None),
        ("seed", 5, 5),
        ("seed", 4294967301, 5),
        ("repeat_last_n", -1, -1),
        ("samplers", ["top_k", "temp", "typical_p", "top_k", "nothing"], ("top_k", "temperature", "typ_p")),
        ("samplers", "kpt?", ("top_k", "top_p", "temperature")),
        ("dry_sequence_breakers", ["\n"], ("\n",)),
    ],
)
def test_values_in_range_arrive(field: str, given: Any, expected: Any) -> None:
    assert getattr(chosen(**{field: given}), field) == expected


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("repeat_last_n", -2),
        ("top_p", 2),
        ("top_p", -2),
        ("min_p", 2),
        ("xtc_probability", -1),
        ("xtc_threshold", 3),
        ("mirostat", 5),
        ("mirostat", -5),
        ("adaptive_target", 7),
        ("dry_penalty_last_n", -2),
        ("dry_allowed_length", -1),
        ("min_keep", -1),
        ("adaptive_decay", 1.5),
        ("dry_sequence_breakers", []),
        ("logit_bias", {"5": True}),
        ("logit_bias", [[-5, 1.0]]),
        ("logit_bias", [[5]]),
        ("json_schema", "text"),
        ("temperature", "hot"),
        ("ignore_eos", 1),
    ],
)
def test_limits_are_kept_by_refusing(field: str, given: Any) -> None:
    with pytest.raises(ApiError) as caught:
        chosen(**{field: given})
    assert caught.value.status == 400
    assert field in caught.value.message


def test_biases_of_both_forms() -> None:
    pairs = ((15, 1.5), ("word", -math.inf))
    assert chosen(logit_bias={"15": 1.5, "word": False}).logit_bias == pairs
    assert chosen(logit_bias=[[15, 1.5], ["word", False]]).logit_bias == pairs
    assert chosen(logit_bias=[["15", 1.5]]).logit_bias == (("15", 1.5),)


def test_constraints() -> None:
    assert chosen(json_schema={"type": "object"}).constraint == JsonSchema(b'{"type":"object"}')
    assert chosen(grammar="root ::= [a]").constraint == Grammar("root ::= [a]")
    with pytest.raises(ApiError, match="not both"):
        chosen(grammar="root ::= [a]", json_schema={})


def test_defaults_of_the_chain_are_llama_servers() -> None:
    assert SamplingParameters().samplers == DEFAULT_SAMPLERS

"""The request fields that all generating endpoints share, as llama-server names and limits them.

Every field may be absent or null, which means the model's own default.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

INT32_MAX = 2**31 - 1

Count = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Positive = Annotated[int, Meta(ge=1, le=INT32_MAX)]
Limit = Annotated[int, Meta(ge=-1, le=INT32_MAX)]
Integer = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Decay = Annotated[float, Meta(ge=0.0, le=0.99)]
Milliseconds = Annotated[int, Meta(ge=-1, le=2**62)]

Strings = str | list[str]


def absent() -> Any:
    """The default of a raw field: no bytes at all."""
    return msgspec.field(default_factory=msgspec.Raw)


RAW_ABSENT = (b"", b"null")


def present(raw: msgspec.Raw) -> bool:
    """Whether a raw field was sent and is not null."""
    return bytes(raw) not in RAW_ABSENT


class LoraField(Struct):
    id: Count
    scale: float


class StreamOptions(Struct):
    include_usage: bool | None = None


class SamplingFields(Struct, kw_only=True):
    """How the next token is chosen. What lies outside a field's range is refused."""

    temperature: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    top_k: Integer | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    repeat_last_n: Limit | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: Count | None = None
    dry_penalty_last_n: Limit | None = None
    dry_sequence_breakers: list[str] | None = None
    mirostat: Integer | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    adaptive_target: float | None = None
    adaptive_decay: Decay | None = None
    samplers: Strings | None = None
    seed: Integer | None = None
    min_keep: Count | None = None
    logit_bias: dict[str, float | bool] | list[tuple[int | str, float | bool]] | None = None
    ignore_eos: bool | None = None
    grammar: str | None = None
    json_schema: msgspec.Raw = absent()
    post_sampling_probs: bool | None = None


class GenerationFields(SamplingFields, kw_only=True):
    """What all generating endpoints accept beside the prompt."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n_predict: Limit | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    stop: Strings | None = None
    n: Positive | None = None
    n_cmpl: Positive | None = None
    cache_prompt: bool | None = None
    n_cache_reuse: Count | None = None
    id_slot: Limit | None = None
    n_keep: Limit | None = None
    n_discard: Count | None = None
    n_indent: Count | None = None
    t_max_predict_ms: Milliseconds | None = None
    return_tokens: bool | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    lora: list[LoraField] | None = None
    reasoning_format: str | None = None
    reasoning_control: bool | None = None
    reasoning_budget_tokens: Limit | None = None

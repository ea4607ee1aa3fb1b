"""How the next token is chosen. Names, meaning and defaults are llama-server's."""

from __future__ import annotations

from msgspec import Struct

DEFAULT_SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")


class JsonSchema(Struct, frozen=True, tag="json_schema", omit_defaults=True):
    """Output must satisfy this JSON Schema (JSON text); `{}` means any JSON object."""

    schema_json: bytes


class Grammar(Struct, frozen=True, tag="grammar", omit_defaults=True):
    """Output must satisfy this GBNF grammar."""

    gbnf: str


Constraint = JsonSchema | Grammar


class SamplingParameters(Struct, frozen=True, omit_defaults=True):
    """The sampler chain of one request.

    `seed` None means a random one. `logit_bias` holds (token or text, bias) pairs, -inf bans. `repeat_last_n` and
    `dry_penalty_last_n` count tokens, -1 for the whole context. A `temperature` of 0 or less is greedy.
    """

    temperature: float = 0.8
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    samplers: tuple[str, ...] = DEFAULT_SAMPLERS
    seed: int | None = None
    min_keep: int = 0
    logit_bias: tuple[tuple[int | str, float], ...] = ()
    ignore_eos: bool = False
    constraint: Constraint | None = None
    n_probs: int = 0
    post_sampling_probs: bool = False

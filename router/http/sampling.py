"""From a request's sampling fields to the sampler chain that a worker builds."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from protocol.sampling import Grammar, JsonSchema, SamplingParameters
from router.http.errors import invalid
from router.http.fields import SamplingFields, present

RANGES = {
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "mirostat": (0, 2),
    "adaptive_target": (-math.inf, 1.0),
}
"""Fields that mean nothing outside a range. llama-server moves them into it, OpenAI refuses; a value that is silently
replaced helps nobody, so they are refused."""

FLOORS = {"temperature": 0.0, "top_k": 0}
"""Fields whose negative values mean the same as their lowest one: greedy, and no limit."""

PLAIN = (
    "dynatemp_range",
    "dynatemp_exponent",
    "typical_p",
    "top_n_sigma",
    "repeat_last_n",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "dry_multiplier",
    "dry_allowed_length",
    "dry_penalty_last_n",
    "mirostat_tau",
    "mirostat_eta",
    "adaptive_decay",
    "min_keep",
    "ignore_eos",
    "post_sampling_probs",
)
"""Fields that are taken as they are."""

SAMPLER_NAMES = {
    "penalties": "penalties",
    "dry": "dry",
    "top_n_sigma": "top_n_sigma",
    "top_k": "top_k",
    "typ_p": "typ_p",
    "typical_p": "typ_p",
    "typical": "typ_p",
    "typ": "typ_p",
    "top_p": "top_p",
    "nucleus": "top_p",
    "min_p": "min_p",
    "xtc": "xtc",
    "temperature": "temperature",
    "temp": "temperature",
    "infill": "infill",
    "adaptive_p": "adaptive_p",
}

SAMPLER_CHARS = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
    "i": "infill",
    "a": "adaptive_p",
}

RANDOM_SEEDS = (-1, 2**32 - 1)


def sampling(fields: SamplingFields, base: SamplingParameters, n_probs: int) -> SamplingParameters:
    """The parameters of one request over the model's defaults. Raises `ApiError` for what cannot be honoured."""
    chosen: dict[str, Any] = {"n_probs": n_probs}
    for name, (low, high) in RANGES.items():
        value = getattr(fields, name)
        if value is not None:
            if not low <= value <= high:
                bounds = f"at most {high:g}" if low == -math.inf else f"between {low:g} and {high:g}"
                raise invalid(f"{name}: must be {bounds}, not {value:g}", name)
            chosen[name] = value
    for name, floor in FLOORS.items():
        value = getattr(fields, name)
        if value is not None:
            chosen[name] = max(value, floor)
    for name in PLAIN:
        value = getattr(fields, name)
        if value is not None:
            chosen[name] = value
    if fields.dry_base is not None and fields.dry_base >= 1.0:
        chosen["dry_base"] = fields.dry_base
    if fields.dry_sequence_breakers is not None:
        chosen["dry_sequence_breakers"] = _breakers(fields.dry_sequence_breakers)
    if fields.samplers is not None:
        chosen["samplers"] = _samplers(fields.samplers)
    if fields.seed is not None:
        chosen["seed"] = None if fields.seed in RANDOM_SEEDS else fields.seed % 2**32
    if fields.logit_bias is not None:
        chosen["logit_bias"] = _logit_bias(fields.logit_bias)
    constraint = _constraint(fields)
    if constraint is not None:
        chosen["constraint"] = constraint
    return msgspec.structs.replace(base, **chosen)


def _breakers(breakers: list[str]) -> tuple[str, ...]:
    if not breakers:
        raise invalid("dry_sequence_breakers must be a non-empty array of strings", "dry_sequence_breakers")
    return tuple(breakers)


def _samplers(samplers: str | list[str]) -> tuple[str, ...]:
    """Names, or one string of llama.cpp's letters; unknown ones are skipped as llama-server skips them."""
    if isinstance(samplers, str):
        found = [SAMPLER_CHARS[char] for char in samplers if char in SAMPLER_CHARS]
    else:
        normal = [name.lower().replace("-", "_") for name in samplers]
        found = [SAMPLER_NAMES[name] for name in normal if name in SAMPLER_NAMES]
    return tuple(dict.fromkeys(found))


def _logit_bias(
    bias: dict[str, float | bool] | list[tuple[int | str, float | bool]],
) -> tuple[tuple[int | str, float], ...]:
    """`false` bans a token. Keys of the object form are token numbers where they read as one, text otherwise."""
    pairs: list[tuple[int | str, float]] = []
    for key, value in bias.items() if isinstance(bias, dict) else bias:
        if value is True:
            raise invalid("logit_bias: a bias is a number, or false to ban the token", "logit_bias")
        token = int(key) if isinstance(key, str) and key.isdecimal() and isinstance(bias, dict) else key
        if isinstance(token, int) and not 0 <= token < 2**31:
            raise invalid(f"logit_bias: {token} is no token", "logit_bias")
        pairs.append((token, -math.inf if value is False else float(value)))
    return tuple(pairs)


def _constraint(fields: SamplingFields) -> JsonSchema | Grammar | None:
    has_schema = present(fields.json_schema)
    if has_schema and fields.grammar:
        raise invalid("use either json_schema or grammar, not both", "grammar")
    if has_schema:
        return schema_constraint(bytes(fields.json_schema), "json_schema")
    if fields.grammar:
        return Grammar(fields.grammar)
    return None


def schema_constraint(schema: bytes, param: str) -> JsonSchema:
    """A JSON Schema as a constraint; an empty one means any object."""
    stripped = schema.strip()
    if not stripped.startswith(b"{"):
        raise invalid(f"{param}: a JSON schema is an object", param)
    return JsonSchema(stripped)

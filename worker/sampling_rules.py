"""What sampling parameters may be: ranges, names of samplers, and biases on tokens or texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from protocol.sampling import DEFAULT_SAMPLERS, SamplingParameters
from worker.prompt.errors import PromptError

SAMPLERS = (*DEFAULT_SAMPLERS, "infill", "adaptive_p")
_SPELLINGS = (
    {name.replace("_", "-"): name for name in SAMPLERS}
    | {name.replace("_", ""): name for name in SAMPLERS}
    | {name: name for name in SAMPLERS}
    | {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p", "typical": "typ_p", "typical_p": "typ_p"}
)
"""Every way llama-server lets a sampler be written."""

MAX_BIASES = 4096
MAX_PROBABILITIES = 1024
MAX_BREAKERS = 64
MAX_BREAKER_CHARS = 256

_UNIT = (0.0, 1.0)
_INFINITE = math.inf
_RANGES: tuple[tuple[str, float, float], ...] = (
    ("temperature", -_INFINITE, 100.0),
    ("dynatemp_range", 0.0, 100.0),
    ("dynatemp_exponent", 0.0, 100.0),
    ("top_p", *_UNIT),
    ("min_p", *_UNIT),
    ("typical_p", *_UNIT),
    ("xtc_probability", *_UNIT),
    ("xtc_threshold", *_UNIT),
    ("top_n_sigma", -1.0, 1000.0),
    ("repeat_last_n", -1, 1 << 31),
    ("repeat_penalty", 0.0, 100.0),
    ("presence_penalty", -100.0, 100.0),
    ("frequency_penalty", -100.0, 100.0),
    ("dry_multiplier", 0.0, 100.0),
    ("dry_base", 0.0, 100.0),
    ("dry_allowed_length", 0, 1 << 20),
    ("dry_penalty_last_n", -1, 1 << 31),
    ("mirostat", 0, 2),
    ("mirostat_tau", 0.0, 1000.0),
    ("mirostat_eta", 0.0, 100.0),
    ("adaptive_target", -1.0, 1.0),
    ("adaptive_decay", 0.0, 0.99),
    ("min_keep", 0, 1 << 20),
    ("n_probs", 0, MAX_PROBABILITIES),
    ("seed", 0, (1 << 32) - 1),
)


def check_sampling(parameters: SamplingParameters) -> None:
    """Raises PromptError naming the first parameter that no sampler can work with."""
    for name, low, high in _RANGES:
        value = getattr(parameters, name)
        if value is None:
            continue
        if math.isnan(value) or not low <= value <= high:
            raise PromptError(_range_message(name, value, low, high), name)
    if parameters.repeat_penalty == 0:
        raise PromptError("repeat_penalty must be above 0", "repeat_penalty")
    for name in parameters.samplers:
        sampler_name(name)
    _check_breakers(parameters.dry_sequence_breakers)
    if len(parameters.logit_bias) > MAX_BIASES:
        raise PromptError(f"logit_bias has more than {MAX_BIASES} entries", "logit_bias")
    for _, bias in parameters.logit_bias:
        if math.isnan(bias) or bias == _INFINITE:
            raise PromptError("a logit_bias must be a number or false", "logit_bias")


def sampler_name(name: str) -> str:
    """The name of a sampler as the engine has it, from any spelling llama-server takes. Raises PromptError."""
    known = _SPELLINGS.get(name.lower())
    if known is None:
        raise PromptError(f"unknown sampler {name!r}; known are {', '.join(sorted(SAMPLERS))}", "samplers")
    return known


def token_biases(
    biases: Sequence[tuple[int | str, float]], n_vocab: int, tokenize: Callable[[str], list[int]]
) -> dict[int, float]:
    """Biases by token; a text's bias goes to each of its tokens. Raises PromptError for tokens that do not exist."""
    by_token: dict[int, float] = {}
    for key, bias in biases:
        tokens = [key] if isinstance(key, int) else tokenize(key)
        for token in tokens:
            if not 0 <= token < n_vocab:
                raise PromptError(f"logit_bias names token {token}, the vocabulary has {n_vocab}", "logit_bias")
            by_token[token] = by_token.get(token, 0.0) + bias
    return by_token


def _check_breakers(breakers: Sequence[str]) -> None:
    if len(breakers) > MAX_BREAKERS:
        raise PromptError(f"dry_sequence_breakers has more than {MAX_BREAKERS} entries", "dry_sequence_breakers")
    if any(not breaker or len(breaker) > MAX_BREAKER_CHARS for breaker in breakers):
        raise PromptError(
            f"dry_sequence_breakers must be texts of 1 to {MAX_BREAKER_CHARS} characters", "dry_sequence_breakers"
        )


def _range_message(name: str, value: float, low: float, high: float) -> str:
    if low == -_INFINITE:
        return f"{name} is {value}, it must be at most {high:g}"
    return f"{name} is {value}, it must be between {low:g} and {high:g}"

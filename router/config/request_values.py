"""Values of options that say what a request starts from. Every function raises `BadValue`."""

from __future__ import annotations

import re

from protocol.sampling import Constraint, Grammar, JsonSchema
from router.config.errors import BadValue
from router.config.values import boolean, file_text, integer, json_object, number, words

_SAMPLERS = {
    "penalties": "e",
    "dry": "d",
    "top_n_sigma": "s",
    "top_k": "k",
    "typ_p": "y",
    "top_p": "p",
    "min_p": "m",
    "xtc": "x",
    "temperature": "t",
    "infill": "i",
    "adaptive_p": "a",
}
_SAMPLER_NAMES = {
    **{name: name for name in _SAMPLERS},
    **{name.replace("_", "-"): name for name in _SAMPLERS},
    "temp": "temperature",
    "nucleus": "top_p",
    "typical_p": "typ_p",
    "typical-p": "typ_p",
    "typical": "typ_p",
    "typ": "typ_p",
}
_SAMPLER_LETTERS = {letter: name for name, letter in _SAMPLERS.items()}


def samplers(value: str) -> tuple[str, ...]:
    """Sampler names in order, separated by semicolons."""
    found = tuple(word.strip() for word in value.split(";") if word.strip())
    unknown = [word for word in found if word not in _SAMPLER_NAMES]
    if unknown:
        raise BadValue(f"'{unknown[0]}' is not a sampler; they are {', '.join(_SAMPLERS)}")
    return tuple(_SAMPLER_NAMES[word] for word in found)


def sampler_letters(value: str) -> tuple[str, ...]:
    unknown = [letter for letter in value.strip() if letter not in _SAMPLER_LETTERS]
    if unknown:
        raise BadValue(f"'{unknown[0]}' is not a sampler's letter; they are {''.join(_SAMPLER_LETTERS)}")
    return tuple(_SAMPLER_LETTERS[letter] for letter in value.strip())


def seed(value: str) -> int | None:
    """A seed; -1 means a random one."""
    parsed = integer(-1, (1 << 32) - 1)(value)
    return None if parsed in (-1, (1 << 32) - 1) else parsed


_BIAS = re.compile(r"^(\d+)([+-].+)$")


def logit_bias(value: str) -> tuple[tuple[int | str, float], ...]:
    """`token+bias` or `token-bias`, comma-separated."""
    found: list[tuple[int | str, float]] = []
    for item in words(value):
        match = _BIAS.match(item)
        if match is None:
            raise BadValue(f"'{item}' is not TOKEN_ID(+/-)BIAS")
        found.append((int(match[1]), number()(match[2])))
    return tuple(found)


def sequence_breaker(value: str) -> tuple[str, ...]:
    return () if value == "none" else (value.replace("\\n", "\n").replace("\\t", "\t"),)


def grammar(value: str) -> Constraint | None:
    return Grammar(value) if value.strip() else None


def grammar_file(value: str) -> Constraint | None:
    return grammar(file_text(value))


def json_schema(value: str) -> Constraint:
    return JsonSchema(json_object(value))


def json_schema_file(value: str) -> Constraint:
    return json_schema(file_text(value))


def chat_template(value: str) -> str:
    """The text of a Jinja template. llama.cpp's built-in names are its C++ code and do not exist here."""
    if "{" not in value:
        raise BadValue(f"'{value}' is no Jinja text; llama.cpp's built-in template names are not supported")
    return value


def chat_template_file(value: str) -> str:
    return chat_template(file_text(value))


def thinking(value: str) -> bool | None:
    return None if value.strip().lower() == "auto" else boolean(value)

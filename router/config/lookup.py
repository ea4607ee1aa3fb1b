"""Finds options by the names that presets and the environment use for them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from router.config.errors import BadValue
from router.config.flags import OPTIONS
from router.config.option import Assignment, Option, Target
from router.config.values import boolean


def _keys() -> tuple[dict[str, Option], dict[str, Option]]:
    """Keys as presets write them (flags without dashes, environment names), positive and negated."""
    positive: dict[str, Option] = {}
    negated: dict[str, Option] = {}
    for option in OPTIONS:
        for flag in option.flags:
            positive[flag.lstrip("-")] = option
        for flag in option.off:
            negated[flag.lstrip("-")] = option
        if option.env:
            positive[option.env] = option
        positive[option.own_env] = option
    return positive, negated


_POSITIVE, _NEGATED = _keys()
_FLAGS = tuple(flag for option in OPTIONS if not option.preset_only for flag in (*option.flags, *option.off))


def assign(key: str, text: str, origin: str) -> Assignment | None:
    """What a preset's line means; None for a key that no option has. A negated key turns the value round.

    Raises `BadValue` if a negated key's value is not on or off.
    """
    option = _NEGATED.get(key)
    if option is not None:
        return Assignment(option, ("off" if boolean(text) else "on",), origin)
    option = _POSITIVE.get(key)
    if option is None:
        return None
    return Assignment(option, (text,), origin)


def from_environment(environ: Mapping[str, str]) -> tuple[Assignment, ...]:
    """Options that the environment sets; our own name wins over llama-server's. Negated names count as well."""
    found: list[Assignment] = []
    for option in OPTIONS:
        if option.preset_only:
            continue
        for name in filter(None, (option.own_env, option.env)):
            if name in environ:
                found.append(Assignment(option, (environ[name],), name))
                break
            negated = name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_").replace("LLAMAHERD_", "LLAMAHERD_NO_")
            if option.is_switch and negated != name and negated in environ:
                found.append(Assignment(option, ("off" if boolean(environ[negated]) else "on",), negated))
                break
    return tuple(found)


def nearest_key(key: str) -> str:
    """The key of a preset that looks most like `key`, "" if none does."""
    names = [option.name for option in OPTIONS if option.in_preset and option.target is not Target.REFUSED]
    return _nearest(key, names)


def nearest_flag(flag: str) -> str:
    return _nearest(flag, _FLAGS)


def unknown_key(key: str) -> BadValue:
    hint = nearest_key(key)
    return BadValue(f"unknown key '{key}'" + (f"; did you mean '{hint}'?" if hint else ""))


def _nearest(word: str, words: list[str] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return close[0] if close else ""

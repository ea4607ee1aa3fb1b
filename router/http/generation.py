"""The one place where a dialect's request becomes `Generate`. Dialects bring the prompt and what is theirs alone."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from protocol.chat import Prompt
from protocol.generate import Generate, LoraScale
from protocol.sampling import Constraint
from protocol.text import CountTokens
from router.config.model import Model
from router.http.errors import invalid
from router.http.fields import GenerationFields, LoraField, Strings
from router.http.media import check_files
from router.http.sampling import sampling

T = TypeVar("T")


def generate(
    fields: GenerationFields,
    prompt: Prompt,
    model: Model,
    *,
    n_probs: int = 0,
    constraint: Constraint | None = None,
    stop: Strings | None = None,
    suffix: str = "",
    echo: bool = False,
) -> Generate:
    """The work of one request; its number is filled in when it is submitted.

    `constraint` is what the dialect's own fields ask for; it may not meet a `grammar` or `json_schema` beside it.
    """
    check_files(prompt, model)
    defaults = model.request
    parameters = sampling(fields, defaults.sampling, n_probs)
    if constraint is not None:
        if parameters.constraint is not defaults.sampling.constraint:
            raise invalid("constrain the output in one way only: response_format, json_schema or grammar")
        parameters = msgspec.structs.replace(parameters, constraint=constraint)
    return Generate(
        request=0,
        prompt=prompt,
        sampling=parameters,
        max_tokens=max_tokens(fields, defaults.max_tokens),
        stop=stop_strings(fields.stop if stop is None else stop) or defaults.stop,
        n=choices(fields, model),
        stream=bool(fields.stream),
        echo=echo,
        cache_prompt=pick(fields.cache_prompt, defaults.cache_prompt),
        cache_reuse=pick(fields.n_cache_reuse, defaults.cache_reuse),
        slot=pick(fields.id_slot, -1),
        n_keep=pick(fields.n_keep, defaults.n_keep),
        n_discard=pick(fields.n_discard, 0),
        n_indent=pick(fields.n_indent, 0),
        time_limit_ms=max(pick(fields.t_max_predict_ms, 0), 0),
        return_tokens=pick(fields.return_tokens, False),
        return_progress=pick(fields.return_progress, False),
        timings_per_token=pick(fields.timings_per_token, False),
        adapters=adapters(fields.lora),
        reasoning_control=pick(fields.reasoning_control, False),
        suffix=suffix,
    )


def count(prompt: Prompt, model: Model) -> CountTokens:
    """The work of counting a prompt's tokens."""
    check_files(prompt, model)
    return CountTokens(request=0, prompt=prompt)


def pick(value: T | None, default: T) -> T:
    """A field that may be absent, or its default."""
    return default if value is None else value


def max_tokens(fields: GenerationFields, default: int) -> int:
    """llama-server's name goes before OpenAI's two."""
    for value in (fields.n_predict, fields.max_completion_tokens, fields.max_tokens):
        if value is not None:
            return value
    return default


def stop_strings(stop: Strings | None) -> tuple[str, ...]:
    if stop is None:
        return ()
    return tuple(word for word in ([stop] if isinstance(stop, str) else stop) if word)


def choices(fields: GenerationFields, model: Model) -> int:
    """How many continuations; each takes a slot."""
    slots = model.parameters.slots if model.parameters is not None else 1
    n = pick(fields.n_cmpl, pick(fields.n, 1))
    if n > slots:
        raise invalid(f"n: the model has {slots} slots, so that at most {slots} choices can be made, not {n}", "n")
    return n


def adapters(lora: list[LoraField] | None) -> tuple[LoraScale, ...] | None:
    return None if lora is None else tuple(LoraScale(entry.id, entry.scale) for entry in lora)

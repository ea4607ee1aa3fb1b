"""Counts, speeds and probabilities of an answer as JSON values, with llama-server's names."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from protocol.codec import Answer
from protocol.generate import Completed, PromptProgress, Timings, TokenLogprob, Usage

_FINISH_REASON = {"limit": "length", "tool_calls": "tool_calls"}

LOWEST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON cannot express; OpenAI uses the same number."""


def completed(answer: Answer) -> Completed:
    """The answer to a `Generate` that ended well."""
    if not isinstance(answer, Completed):
        raise TypeError(f"a generation cannot be answered by {type(answer).__name__}")
    return answer


def finish_reason(stop: str) -> str:
    """OpenAI's word for the way a choice ended."""
    return _FINISH_REASON.get(stop, "stop")


def openai_usage(usage: Usage) -> dict[str, Any]:
    value: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if usage.reasoning_tokens:
        value["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return value


def responses_usage(usage: Usage) -> dict[str, Any]:
    """The names of the Responses API and of transcriptions."""
    return {
        "input_tokens": usage.prompt_tokens,
        "output_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def timings(times: Timings) -> dict[str, Any]:
    """Milliseconds and tokens per second. The first token belongs to the prompt, so speeds count one less."""
    steps = max(times.predicted_n - 1, 0)
    value: dict[str, Any] = {
        "cache_n": times.cache_n,
        "prompt_n": times.prompt_n,
        "prompt_ms": times.prompt_ms,
        "prompt_per_token_ms": _ratio(times.prompt_ms, times.prompt_n),
        "prompt_per_second": _ratio(1e3 * times.prompt_n, times.prompt_ms),
        "predicted_n": times.predicted_n,
        "predicted_ms": times.predicted_ms,
        "predicted_per_token_ms": _ratio(times.predicted_ms, steps),
        "predicted_per_second": _ratio(1e3 * steps, times.predicted_ms),
    }
    if times.draft_n:
        value["draft_n"] = times.draft_n
        value["draft_n_accepted"] = times.draft_n_accepted
    return value


def _ratio(value: float, over: float) -> float:
    return value / over if over > 0 else 0.0


def progress(value: PromptProgress) -> dict[str, Any]:
    return {"total": value.total, "cache": value.cache, "processed": value.processed, "time_ms": value.time_ms}


def logprob_entries(entries: Iterable[TokenLogprob], *, as_probabilities: bool) -> list[dict[str, Any]]:
    """The `content` array of chat logprobs and the native `completion_probabilities`, which look alike."""
    top_name = "top_probs" if as_probabilities else "top_logprobs"
    return [
        {**_logprob(entry, as_probabilities), top_name: [_logprob(other, as_probabilities) for other in entry.top]}
        for entry in entries
    ]


def _logprob(entry: TokenLogprob, as_probabilities: bool) -> dict[str, Any]:
    value: dict[str, Any] = {
        "id": entry.token,
        "token": piece_text(entry.piece),
        "bytes": list(entry.piece),
    }
    if as_probabilities:
        value["prob"] = math.exp(entry.logprob)
    else:
        value["logprob"] = finite(entry.logprob)
    return value


def legacy_logprobs(entries: Iterable[TokenLogprob], offset: int) -> dict[str, Any]:
    """The parallel arrays of `/v1/completions`; `offset` is the number of characters before the first token."""
    tokens: list[str] = []
    values: list[float] = []
    tops: list[dict[str, float]] = []
    offsets: list[int] = []
    for entry in entries:
        text = piece_text(entry.piece)
        tokens.append(text)
        values.append(finite(entry.logprob))
        tops.append({piece_text(other.piece): finite(other.logprob) for other in entry.top})
        offsets.append(offset)
        offset += len(text)
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}


def piece_text(piece: bytes) -> str:
    """A token's bytes as text; what is no whole character becomes the replacement character."""
    return piece.decode("utf-8", "replace")


def finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else LOWEST_LOGPROB

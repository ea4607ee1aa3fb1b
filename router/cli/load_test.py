"""Many clients at once against one gateway, and what they saw."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct

from router.cli.client import Client, ClientError
from router.cli.sse import server_events


class Percentiles(Struct, frozen=True):
    """Seconds."""

    p50: float
    p90: float
    p99: float


class Measurement(Struct, frozen=True):
    """One level of concurrency. Times in seconds; gaps are between events of one stream."""

    clients: int
    requests: int
    failed: int
    tokens: int
    took: float
    tokens_per_second: float
    first_token: Percentiles
    between_tokens: Percentiles
    errors: tuple[str, ...] = ()


class _Observed:
    """What all clients of one level saw."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.tokens = 0
        self.first: list[float] = []
        self.gaps: list[float] = []
        self.errors: list[str] = []


def run(
    client: Client, body: dict[str, Any], prompt: str, *, clients: int, requests: int, same_prompt: bool
) -> Measurement:
    """Send `requests` streamed requests from `clients` clients. Raises `ClientError` if not one succeeds."""
    observed = _Observed()
    begun = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        for number in range(requests):
            # A number at the front keeps prompts apart from the first token on, so that no prefix is shared.
            text = prompt if same_prompt else f"{number}. {prompt}"
            pool.submit(_one, client, {**body, "messages": [{"role": "user", "content": text}]}, observed)
    took = time.perf_counter() - begun
    if observed.errors and len(observed.errors) == requests:
        raise ClientError(f"every request failed: {observed.errors[0]}")
    return Measurement(
        clients,
        requests,
        len(observed.errors),
        observed.tokens,
        took,
        observed.tokens / took,
        percentiles(observed.first),
        percentiles(observed.gaps),
        tuple(dict.fromkeys(observed.errors)),
    )


def _one(client: Client, body: dict[str, Any], observed: _Observed) -> None:
    begun = previous = time.perf_counter()
    first: float | None = None
    gaps: list[float] = []
    tokens = counted = 0
    try:
        request = {**body, "stream": True, "stream_options": {"include_usage": True}}
        for event in server_events(client.lines("POST", "/v1/chat/completions", request)):
            if event.comment or event.data == "[DONE]":
                continue
            chunk = event.json()
            if "error" in chunk:
                raise ClientError(str(chunk["error"]))
            tokens = int((chunk.get("usage") or {}).get("completion_tokens") or tokens)
            if not any(has_text(choice) for choice in chunk.get("choices", ())):
                continue
            now = time.perf_counter()
            counted += 1
            if first is None:
                first = now - begun
            else:
                gaps.append(now - previous)
            previous = now
    except ClientError as error:
        with observed.lock:
            observed.errors.append(str(error))
        return
    with observed.lock:
        observed.tokens += tokens or counted
        observed.gaps.extend(gaps)
        if first is not None:
            observed.first.append(first)


def has_text(choice: dict[str, Any]) -> bool:
    delta = choice.get("delta") or {}
    return bool(delta.get("content") or delta.get("reasoning_content"))


def percentiles(values: Sequence[float]) -> Percentiles:
    """By nearest rank; zeros for no values."""
    if not values:
        return Percentiles(0.0, 0.0, 0.0)
    ordered = sorted(values)

    def rank(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return Percentiles(rank(0.5), rank(0.9), rank(0.99))

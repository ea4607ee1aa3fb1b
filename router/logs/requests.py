"""The one line that each request leaves in the log."""

from __future__ import annotations

import logging

import msgspec
from msgspec import Struct, structs

from router.logs.formats import FIELDS

logger = logging.getLogger("llamaherd.request")


class RequestRecord(Struct, frozen=True, omit_defaults=True):
    """What became of one request to a model. Times are milliseconds, None for a phase that it did not reach.

    `end` is how the answer ended (`eos`, `word`, `limit`, `tool_calls`, `done`), or the kind of the error.
    """

    id: str
    model: str
    end: str
    total_ms: float
    key: str = ""
    queue_ms: float | None = None
    load_ms: float | None = None
    ttft_ms: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    error: str = ""


_FAULTS = frozenset({"internal", "worker_died", "load_failed"})
"""Ends that are nobody's wish and no client's mistake."""


def log_request(record: RequestRecord) -> None:
    """Log one finished request."""
    level = logging.WARNING if record.end in _FAULTS else logging.INFO
    if not logger.isEnabledFor(level):
        return
    fields = {
        name: round(value, 1) if isinstance(value, float) else value
        for name, value in structs.asdict(record).items()
        if value not in (None, "")
    }
    logger.log(level, "request", extra={FIELDS: fields})


LONGEST_PROMPT = 64_000
"""Characters of a prompt that the log holds at most; images and audio count, in base64."""


def log_work(id: str, model: str, work: Struct) -> None:
    """Log what a client has sent. Only where the operator asks for it: prompts are private."""
    text = msgspec.json.encode(getattr(work, "prompt", work)).decode()
    if len(text) > LONGEST_PROMPT:
        text = f"{text[:LONGEST_PROMPT]}… {len(text)} characters in all"
    logger.info("prompt", extra={FIELDS: {"id": id, "model": model, "prompt": text}})

"""The one line that each request leaves in the log."""

from __future__ import annotations

import logging

from msgspec import Struct, structs

from router.logs.formats import FIELDS

logger = logging.getLogger("llamaherd.request")


class RequestRecord(Struct, frozen=True, omit_defaults=True):
    """What became of one request. Times are milliseconds, None for a phase that it did not reach.

    `end` is the finish reason of the answer (`stop`, `length`, `tool_calls`), or why there is none
    (`cancelled`, `client_gone`, `error`, and the kind of the error in `error`).
    """

    id: str
    method: str
    path: str
    status: int
    end: str
    total_ms: float
    key: str = ""
    model: str = ""
    queue_ms: float | None = None
    load_ms: float | None = None
    ttft_ms: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    error: str = ""


def log_request(record: RequestRecord, *, polling: bool = False) -> None:
    """Log one finished request. `polling` marks what clients ask all the time: it is logged at debug only."""
    level = logging.DEBUG if polling else logging.WARNING if record.status >= 500 else logging.INFO
    if not logger.isEnabledFor(level):
        return
    fields = {
        name: round(value, 1) if isinstance(value, float) else value
        for name, value in structs.asdict(record).items()
        if value not in (None, "") and name not in ("method", "path", "status")
    }
    logger.log(level, "%s %s %d", record.method, record.path, record.status, extra={FIELDS: fields})

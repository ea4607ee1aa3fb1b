"""Takes secrets out of log lines: those that are known, and those that look like one."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable

MASK = "[redacted]"
MIN_SECRET = 6
"""Shorter configured secrets are not masked by value: they would tear holes into ordinary words."""

_LIKELY = re.compile(
    r"(?P<keep>\bbearer\s+|\b(?:authorization|x-api-key|api[_-]key|token)[\"']?\s*[:=]\s*[\"']?(?:bearer\s+)?)"
    r"(?P<secret>[^\s\"',;&]+)"
    r"|\bhf_[A-Za-z0-9]{16,}\b|\bsk-[A-Za-z0-9_-]{16,}|\blh-[A-Za-z0-9_-]{32,}",
    re.IGNORECASE,
)


class Redactor:
    """Masks configured secrets wherever they stand, and whatever has the shape of a key or token."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._known: re.Pattern[str] | None = None
        self.set_secrets(secrets)

    def set_secrets(self, secrets: Iterable[str]) -> None:
        # Longest first: a secret that contains another is masked whole.
        known = sorted({secret for secret in secrets if len(secret) >= MIN_SECRET}, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def redact(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MASK, text)
        return _LIKELY.sub(lambda match: f"{match['keep'] or ''}{MASK}", text)


class RedactingFormatter(logging.Formatter):
    """Wraps another formatter, so that messages, arguments and tracebacks all pass through the redactor."""

    def __init__(self, inner: logging.Formatter, redactor: Redactor) -> None:
        super().__init__()
        self._inner = inner
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.redact(self._inner.format(record))

"""Sets logging up at start, and changes its level at run time."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable
from typing import Literal, TextIO

from router.logs.formats import ConsoleFormatter, JsonFormatter
from router.logs.redaction import RedactingFormatter, Redactor
from router.logs.ring import LogRing

RING = LogRing()
"""The log of this process, for `GET /logs`: there is one, as there is one root logger."""

LogFormat = Literal["auto", "json", "console"]
LEVELS = ("debug", "info", "warning", "error")

_NOISY = ("asyncio", "uvicorn.access", "uvicorn.error")
"""Loggers of libraries that say at `info` what we say in one line of our own."""


class UnknownLevel(ValueError):
    """The name is no level of ours."""


def configure_logging(
    level: str = "info",
    log_format: LogFormat = "auto",
    secrets: Iterable[str] = (),
    stream: TextIO | None = None,
) -> Redactor:
    """Send all logs to `stream` (standard error), JSON where it is no terminal, and keep the last lines in `RING`.

    Returns the redactor in use.

    May be called again: it replaces what the call before had set up. Raises `UnknownLevel`.
    """
    stream = stream if stream is not None else sys.stderr
    redactor = Redactor(secrets)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(RedactingFormatter(_formatter(log_format, stream), redactor))
    RING.setFormatter(RedactingFormatter(ConsoleFormatter(colour=False), redactor))
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old.formatter, RedactingFormatter)]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.addHandler(RING)
    set_level(level)
    logging.captureWarnings(True)
    return redactor


def set_level(level: str) -> None:
    """Raises `UnknownLevel`."""
    if level.lower() not in LEVELS:
        raise UnknownLevel(f"log level {level!r}: choose one of {', '.join(LEVELS)}")
    number = logging.getLevelNamesMapping()[level.upper()]
    logging.getLogger().setLevel(number)
    for name in _NOISY:
        logging.getLogger(name).setLevel(max(number, logging.WARNING) if number > logging.DEBUG else logging.DEBUG)


def current_level() -> str:
    return logging.getLevelName(logging.getLogger().level).lower()


def _formatter(log_format: LogFormat, stream: TextIO) -> logging.Formatter:
    if log_format == "json" or (log_format == "auto" and not stream.isatty()):
        return JsonFormatter()
    return ConsoleFormatter(
        colour=stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    )

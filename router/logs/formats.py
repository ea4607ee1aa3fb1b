"""The two shapes of a log line."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import msgspec

FIELDS = "fields"
"""Name of the `extra` entry that holds a line's structured fields, as a dict of plain values."""

_RESET = "\x1b[0m"
_DIM = "\x1b[2m"
_COLOURS = {logging.WARNING: "\x1b[33m", logging.ERROR: "\x1b[31m", logging.CRITICAL: "\x1b[1;31m"}
_LETTERS = {
    logging.DEBUG: "D",
    logging.INFO: "I",
    logging.WARNING: "W",
    logging.ERROR: "E",
    logging.CRITICAL: "C",
}


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = getattr(record, FIELDS, None)
    return fields if isinstance(fields, dict) else {}


def _compact(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    text = str(value)
    return msgspec.json.encode(text).decode() if not text or any(c.isspace() or c == '"' for c in text) else text


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `time` (UTC, ISO 8601), `level`, `logger`, `message`, then the line's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class ConsoleFormatter(logging.Formatter):
    """For people: time, level letter, message, `name=value` fields; coloured where the terminal can."""

    def __init__(self, colour: bool) -> None:
        super().__init__()
        self._colour = colour

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).astimezone().strftime("%H:%M:%S.%f")[:-3]
        letter = _LETTERS.get(record.levelno, record.levelname)
        fields = "".join(f" {name}={_compact(value)}" for name, value in _fields(record).items())
        message = record.getMessage()
        if self._colour:
            tint = _COLOURS.get(record.levelno, "")
            line = f"{_DIM}{clock}{_RESET} {tint}{letter} {message}{_RESET if tint else ''}"
            line += f"{_DIM}{fields}{_RESET}" if fields else ""
        else:
            line = f"{clock} {letter} {message}{fields}"
        if record.exc_info:
            line += f"\n{self.formatException(record.exc_info)}"
        return line

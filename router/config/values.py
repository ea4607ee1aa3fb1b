"""Turns the text of an option, from whatever place it came, into its value. Every function raises `BadValue`."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

from router.config.errors import BadValue

TRUE = ("on", "enabled", "true", "1", "yes")
FALSE = ("off", "disabled", "false", "0", "no")

_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?$", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?$", re.IGNORECASE)
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

MAX_FILE_BYTES = 4 << 20


def text(value: str) -> str:
    return value


def boolean(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in TRUE:
        return True
    if lowered in FALSE:
        return False
    raise BadValue(f"'{value}' is neither on nor off")


def integer(low: int = -(1 << 31), high: int = (1 << 31) - 1) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value.strip())
        except ValueError:
            raise BadValue(f"'{value}' is not a whole number") from None
        if not low <= number <= high:
            raise BadValue(f"{number} is not between {low} and {high}" if high < (1 << 31) - 1 else f"{number} < {low}")
        return number

    return parse


def number(low: float = -math.inf, high: float = math.inf) -> Callable[[str], float]:
    def parse(value: str) -> float:
        try:
            parsed = float(value.strip())
        except ValueError:
            raise BadValue(f"'{value}' is not a number") from None
        if math.isnan(parsed) or not low <= parsed <= high:
            raise BadValue(f"{value.strip()} is not between {low:g} and {high:g}")
        return parsed

    return parse


def choice(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.strip() not in allowed:
            raise BadValue(f"'{value}' is not one of {', '.join(word or repr('') for word in allowed)}")
        return value.strip()

    return parse


def only(allowed: bool, why: str) -> Callable[[str], bool]:
    """A switch of which one position is how things are here anyway, and the other is not offered."""

    def parse(value: str) -> bool:
        if boolean(value) is not allowed:
            raise BadValue(why)
        return allowed

    return parse


def size(value: str) -> int:
    """Bytes: `8G`, `512MiB`, `1048576`. Units are powers of 1024."""
    match = _SIZE.match(value.strip())
    if match is None:
        raise BadValue(f"'{value}' is not a size such as 8G or 512M")
    return int(float(match[1]) * _SIZE_UNITS[match[2].lower()])


def duration(value: str) -> float:
    """Seconds: `30`, `1.5`, `250ms`, `5m`, `2h`."""
    match = _DURATION.match(value.strip())
    if match is None:
        raise BadValue(f"'{value}' is not a time such as 30, 250ms or 5m")
    return float(match[1]) * _DURATION_UNITS[(match[2] or "s").lower()]


def duration_or_auto(value: str) -> float | None:
    return None if value.strip() == "auto" else duration(value)


def idle(value: str) -> float:
    """Seconds of idleness, 0 = never; llama-server writes -1 for that."""
    return 0.0 if value.strip() == "-1" else duration(value)


def budget(value: str) -> tuple[tuple[str, int], ...] | None:
    """`auto`, `8G` for main memory, or one size per device: `host=8G,CUDA0=20G`."""
    if value.strip() == "auto":
        return None
    pairs: list[tuple[str, int]] = []
    for item in words(value):
        device, equals, amount = item.rpartition("=")
        pairs.append((device.strip() if equals else "host", size(amount)))
    if len(dict(pairs)) != len(pairs):
        raise BadValue(f"'{value}' names a device twice")
    return tuple(pairs)


def path(value: str) -> str:
    """An absolute path with `~` resolved. Whether it exists is checked where it is opened."""
    if not value:
        raise BadValue("the path is empty")
    if "\0" in value:
        raise BadValue("the path has a zero byte")
    return os.path.abspath(os.path.expanduser(value))


def file_text(value: str) -> str:
    """The contents of a small text file."""
    try:
        data = Path(path(value)).read_bytes()
        if len(data) > MAX_FILE_BYTES:
            raise BadValue(f"{value} is larger than {MAX_FILE_BYTES >> 20} MiB")
        return data.decode()
    except OSError as error:
        raise BadValue(f"cannot read {value}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadValue(f"{value} is not UTF-8 text") from None


def words(value: str) -> tuple[str, ...]:
    """Comma-separated words; empty ones are dropped."""
    return tuple(word.strip() for word in value.split(",") if word.strip())


def word_choice(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    def parse(value: str) -> tuple[str, ...]:
        found = words(value)
        for word in found:
            if word not in allowed:
                raise BadValue(f"'{word}' is not one of {', '.join(allowed)}")
        return found

    return parse


def secrets(value: str) -> tuple[str, ...]:
    """Comma-separated keys."""
    found = words(value)
    if not found:
        raise BadValue("the key is empty")
    return found


def paths(value: str) -> tuple[str, ...]:
    return (path(value),)


def json_object(value: str) -> bytes:
    """A JSON object, as compact JSON text."""
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise BadValue(f"not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise BadValue("not a JSON object")
    return json.dumps(parsed, ensure_ascii=False, separators=(",", ":")).encode()

"""Key files: one key per line as llama-server reads them, with optional attributes behind the key.

# comment
sk-abc
sk-def name=ci scopes=infer models=qwen*,gemma concurrency=4
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from router.security.keys import InvalidKey, KeySpec
from router.security.scopes import ALL_SCOPES, Scope

logger = logging.getLogger(__name__)

GENERATED_NAME = "api-key"
"""The file in the state folder that holds a key made by the gateway."""


def parse_key_lines(lines: Sequence[str], origin: str) -> list[KeySpec]:
    """The keys of one file. Raises `InvalidKey` with `origin` and the line's number, never with a key."""
    return [
        _parse_line(line, f"{origin}:{number}", f"{Path(origin).name}:{number}")
        for number, line in enumerate(map(str.strip, lines), 1)
        if line and not line.startswith("#")
    ]


def _parse_line(line: str, where: str, name: str) -> KeySpec:
    secret, *attributes = line.split()
    scopes = ALL_SCOPES
    models: tuple[str, ...] = ()
    concurrency = 0
    for attribute in attributes:
        field, separator, value = attribute.partition("=")
        if not separator or not value:
            raise InvalidKey(f"{where}: behind a key, write name=, scopes=, models= or concurrency=, with no blanks")
        if field == "name":
            name = value
        elif field == "scopes":
            scopes = _parse_scopes(value, where)
        elif field == "models":
            models = tuple(filter(None, value.split(",")))
        elif field == "concurrency":
            if not value.isdecimal():
                raise InvalidKey(f"{where}: concurrency must be a whole number, 0 for no limit")
            concurrency = int(value)
        else:
            raise InvalidKey(f"{where}: unknown attribute {field!r}; use name, scopes, models or concurrency")
    return KeySpec(secret, name, scopes, models, concurrency)


def _parse_scopes(value: str, where: str) -> frozenset[Scope]:
    try:
        return frozenset(Scope(part) for part in value.split(","))
    except ValueError as error:
        raise InvalidKey(f"{where}: scopes are {', '.join(Scope)}: {error}") from error


def read_key_file(path: Path) -> list[KeySpec]:
    """Raises `InvalidKey`, also for a file that cannot be read or that others may write."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidKey(f"cannot read the key file {path}: {reason}") from error
    if mode & stat.S_IWOTH:
        raise InvalidKey(f"everybody may write the key file {path}; run: chmod 600 {path}")
    if mode & stat.S_IROTH:
        logger.warning("everybody may read the key file %s; run: chmod 600 %s", path, path)
    specs = parse_key_lines(lines, str(path))
    if not specs:
        raise InvalidKey(f"the key file {path} has no key in it")
    return specs


def keys_from_options(values: Sequence[str], files: Sequence[Path]) -> list[KeySpec]:
    """Keys of `--api-key` (each may be a comma list) and of `--api-key-file`."""
    flat = [key.strip() for value in values for key in value.split(",") if key.strip()]
    specs = [KeySpec(key, f"option-{number}") for number, key in enumerate(flat, 1)]
    return specs + [spec for path in files for spec in read_key_file(path)]


@dataclass(frozen=True, slots=True)
class GeneratedKey:
    """A key that the gateway made for itself; `created` says that it was made just now, and may be shown once."""

    spec: KeySpec
    path: Path
    created: bool


def generated_key(state_dir: Path) -> GeneratedKey:
    """The key for a public bind without configured keys: made once, mode 0600, read again at the next start."""
    path = state_dir / GENERATED_NAME
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    secret = f"lh-{secrets.token_urlsafe(32)}"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        (spec,) = read_key_file(path)[:1]
        return GeneratedKey(KeySpec(spec.secret, "generated"), path, created=False)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{secret}\n")
        file.flush()
        os.fsync(file.fileno())
    return GeneratedKey(KeySpec(secret, "generated"), path, created=True)

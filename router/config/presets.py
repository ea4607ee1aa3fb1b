"""Reads presets: INI in llama-server's format, one section per model and `[*]` for all.

A file that cannot be understood as a whole (syntax, a bad key in `[*]`) raises `ConfigError`; a mistake in one section
is kept with that section, so that only its model fails.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from router.config.errors import BadValue, ConfigError
from router.config.lookup import assign, unknown_key
from router.config.option import Assignment, Target

GLOBAL = "*"
IGNORED_KEYS = ("version",)
MAX_FILE_BYTES = 8 << 20

_HEADER = re.compile(r"^\[(?P<name>[^]]*)\]\s*(?:[;#].*)?$")
_PAIR = re.compile(r"^(?P<key>[A-Za-z_][A-Za-z0-9_.\-]*)\s*=\s*(?P<value>.*)$")
_COMMENT = re.compile(r"(?:^|\s)[;#].*$")
_ENVIRONMENT_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_REFUSED_ENVIRONMENT = ("LD_", "DYLD_", "PYTHON", "LLAMAHERD_")


class Section(Struct, frozen=True):
    """One section. `error` says why its model cannot be served, "" if it can."""

    name: str
    line: int
    assignments: tuple[Assignment, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    error: str = ""


class PresetFile(Struct, frozen=True):
    """A whole file: values for all models, and the sections in their order."""

    path: str = ""
    everywhere: Section = Section(GLOBAL, 0)
    sections: tuple[Section, ...] = ()
    warnings: tuple[str, ...] = ()


class _Draft:
    """A section while its lines are read."""

    def __init__(self, name: str, line: int) -> None:
        self.name = name
        self.line = line
        self.assignments: dict[str, Assignment] = {}
        self.environment: dict[str, str] = {}
        self.errors: list[str] = []

    def finish(self) -> Section:
        return Section(
            self.name,
            self.line,
            tuple(self.assignments.values()),
            tuple(sorted(self.environment.items())),
            "; ".join(self.errors),
        )


def read_presets(path: str | Path) -> PresetFile:
    """Read a file. Raises `ConfigError` with the line where it cannot be understood."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the presets {path}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"the presets {path} are larger than {MAX_FILE_BYTES >> 20} MiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the presets {path} are not UTF-8 text (byte {error.start})") from None
    return parse_presets(text, str(path))


def parse_presets(text: str, path: str = "") -> PresetFile:
    """Parse the text of a preset file; `path` is for messages only."""
    everywhere = _Draft(GLOBAL, 0)
    current: _Draft | None = None
    drafts: list[_Draft] = []
    warnings: list[str] = []
    for number, raw in enumerate(re.split(r"\r\n|\n|\r", text), start=1):
        line = raw.strip()
        if "\0" in line:
            raise ConfigError(f"{path}:{number}: a zero byte; this is no text file")
        if not line or line[0] in ";#":
            continue
        header = _HEADER.match(line)
        if header is not None:
            name = header["name"].strip()
            if not name:
                raise ConfigError(f"{path}:{number}: a section without a name")
            if name == GLOBAL:
                current = everywhere
            else:
                current = _Draft(name, number)
                drafts.append(current)
            continue
        pair = _PAIR.match(line)
        if pair is None:
            raise ConfigError(f"{path}:{number}: neither a section nor 'key = value': {line[:80]}")
        key, value = pair["key"], _COMMENT.sub("", pair["value"]).strip()
        if key in IGNORED_KEYS:
            continue
        if current is None:
            warnings.append(f"{path}:{number}: '{key}' stands before the first section and has no effect; use [*]")
            continue
        _add(current, key, value, number)
    if everywhere.errors:
        raise ConfigError(f"{path}: [*]: {'; '.join(everywhere.errors)}")
    return PresetFile(path, everywhere.finish(), _without_duplicates(drafts), tuple(warnings))


def _add(section: _Draft, key: str, value: str, number: int) -> None:
    if key.startswith("env."):
        name = key.removeprefix("env.")
        if not _ENVIRONMENT_NAME.match(name):
            section.errors.append(f"line {number}: '{name}' cannot be the name of a variable")
        elif name.upper().startswith(_REFUSED_ENVIRONMENT):
            section.errors.append(f"line {number}: the variable {name} may not be set by a preset")
        else:
            section.environment[name] = value
        return
    try:
        item = assign(key, value, f"[{section.name}] line {number}")
        if item is None:
            raise unknown_key(key)
        if not item.option.in_preset:
            raise BadValue(f"'{key}' is a setting of the gateway and may not stand in a preset")
        if item.option.target is Target.REFUSED:
            raise BadValue(f"'{key}' is not supported: {item.option.reason}")
        if item.option.target is Target.SOURCE and section.name == GLOBAL:
            raise BadValue(f"'{key}' cannot be the same for all models")
        # Parsed here so that a bad value is reported with its line; files it names may still be missing later.
        item.value  # noqa: B018
    except BadValue as error:
        section.errors.append(f"line {number}: {error}")
        return
    if item.option.name in section.assignments:
        section.errors.append(f"line {number}: '{item.option.name}' is set twice")
        return
    section.assignments[item.option.name] = item


def _without_duplicates(drafts: list[_Draft]) -> tuple[Section, ...]:
    """Sections by name; one that appears twice is ambiguous, so its model fails with both lines named."""
    found: dict[str, _Draft] = {}
    for draft in drafts:
        first = found.setdefault(draft.name, draft)
        if first is not draft:
            first.errors.append(f"the section appears twice, in lines {first.line} and {draft.line}")
    return tuple(draft.finish() for draft in found.values())

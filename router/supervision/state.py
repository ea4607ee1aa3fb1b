"""What outlives the router: which models were resident, what each was seen to occupy, the names given to them."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from router.scheduling.model import Need

log = logging.getLogger("llamaherd.supervision")

MEASURED_KEPT = 1000

Content = TypeVar("Content")


class Residents(Struct, frozen=True):
    """The models that were loaded. `clean` says that the router has ended on purpose."""

    keys: tuple[str, ...] = ()
    clean: bool = True


class StateFolder:
    """Small JSON files, written whole. One that cannot be read counts as absent: all of it can be found out again."""

    def __init__(self, path: Path) -> None:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._residents = path / "residents.json"
        self._measured = path / "measured.json"
        self._needs: dict[str, tuple[Need, ...]] = _read(self._measured, dict[str, tuple[Need, ...]]) or {}
        self._written: Residents | None = None
        self._copies = path / "copies.json"

    def residents_to_restore(self) -> tuple[str, ...]:
        """The models to load again: those of an unclean end, none after a clean one."""
        found = _read(self._residents, Residents) or Residents()
        return () if found.clean else found.keys

    def save_residents(self, residents: Residents) -> None:
        if residents != self._written:
            _write(self._residents, residents)
            self._written = residents

    def measured(self, key: str) -> tuple[Need, ...]:
        """What a model was seen to occupy, empty if it never ran here."""
        return self._needs.get(key, ())

    def save_measured(self, key: str, needs: tuple[Need, ...]) -> None:
        self._needs.pop(key, None)
        self._needs[key] = needs
        while len(self._needs) > MEASURED_KEPT:
            del self._needs[next(iter(self._needs))]
        _write(self._measured, self._needs)

    def copies(self) -> dict[str, str]:
        """The names that clients have given to models, with the ids of those."""
        return _read(self._copies, dict[str, str]) or {}

    def save_copies(self, copies: dict[str, str]) -> None:
        _write(self._copies, copies)


def _read(path: Path, content: type[Content]) -> Content | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=content)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("cannot use %s: %s", path, error)
        return None


def _write(path: Path, content: object) -> None:
    """Replace a file as a whole; a disk that is full costs the memory of it and nothing more."""
    temporary = path.with_suffix(".new")
    try:
        temporary.write_bytes(msgspec.json.encode(content))
        os.replace(temporary, path)
    except OSError as error:
        log.warning("cannot write %s: %s", path, error)

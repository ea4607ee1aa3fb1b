"""SPEC.md names every message, every field, its type and its default."""

from __future__ import annotations

import typing

import msgspec
import pytest

from protocol.bootstrap import Bootstrap, CurveKeys
from protocol.errors import ErrorKind, ExitCode
from protocol.handshake import PROTOCOL_VERSION
from protocol.status import WorkerState
from tests.protocol.samples import structs
from tests.protocol.spec import PAGE, default_of, describe, sections


@pytest.mark.parametrize("struct", structs(), ids=lambda struct: struct.__name__)
def test_a_struct_is_specified(struct: type[msgspec.Struct]) -> None:
    section = sections()[struct.__name__]
    config = struct.__struct_config__
    assert (section.tag, section.array) == (config.tag or "", config.array_like)
    hints = typing.get_type_hints(struct)
    fields = msgspec.structs.fields(struct)
    assert list(section.fields) == [field.name for field in fields]
    for field in fields:
        kind, default, meaning = section.fields[field.name]
        assert (kind, default) == (describe(hints[field.name]), default_of(field)), field.name
        assert meaning, field.name


def test_nothing_is_specified_that_does_not_exist() -> None:
    assert set(sections()) == {struct.__name__ for struct in structs()}


def test_the_version_the_states_the_codes_and_the_kinds_are_named() -> None:
    text = PAGE.read_text()
    assert f"Version {PROTOCOL_VERSION} (" in text
    assert [state for state in WorkerState if f"| `{state}` |" not in text] == []
    assert [code.name for code in ExitCode if f"| {code.value} |" not in text] == []
    assert [kind for kind in ErrorKind if f"`{kind}`" not in text] == []


def test_the_bootstrap_line_is_specified() -> None:
    text = PAGE.read_text()
    assert [name for name in Bootstrap.__struct_fields__ if f"| `{name}` |" not in text] == []
    assert [name for name in CurveKeys.__struct_fields__ if f"`{name}`" not in text] == []

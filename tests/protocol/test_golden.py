"""The bytes on the wire stay what they are, and the version rule holds."""

from __future__ import annotations

import typing

import msgspec
import pytest

from protocol import codec, control, generate, status
from protocol.errors import ProtocolViolation
from tests.protocol import golden
from tests.protocol.samples import full, minimal, structs

MESSAGES = {*typing.get_args(codec.ToChild), *typing.get_args(codec.FromChild)}


def test_no_struct_has_changed_its_bytes() -> None:
    """A difference here is a change of the protocol: read the version rule in SPEC.md."""
    assert golden.encoded() == golden.stored()


@pytest.mark.parametrize("struct", structs(), ids=lambda struct: struct.__name__)
def test_old_bytes_are_understood(struct: type[msgspec.Struct]) -> None:
    pinned = golden.stored()[struct.__module__.rpartition(".")[2]][struct.__name__]
    for name, make in (("full", full), ("minimal", minimal)):
        assert msgspec.msgpack.decode(bytes.fromhex(pinned[name]), type=struct) == make(struct)


def test_every_message_is_pinned_and_has_a_tag_of_its_own() -> None:
    assert set(structs()) >= MESSAGES
    tags = [struct.__struct_config__.tag for struct in MESSAGES]
    assert all(isinstance(tag, str) and tag for tag in tags)
    assert len(set(tags)) == len(tags)


def test_messages_are_frozen() -> None:
    assert all(struct.__struct_config__.frozen for struct in structs())


@pytest.mark.parametrize("struct", sorted(MESSAGES, key=lambda struct: struct.__name__), ids=lambda s: s.__name__)
def test_messages_go_through_the_codec(struct: type[msgspec.Struct]) -> None:
    message = full(struct)
    frame = codec.encode(message)  # type: ignore[arg-type]
    if struct in typing.get_args(codec.ToChild):
        assert codec.decode_to_child(frame) == message
    else:
        assert codec.decode_from_child(frame, "w1/1") == message


def test_a_field_of_a_later_version_is_ignored() -> None:
    newer = msgspec.msgpack.encode({"type": "cancel", "request": 3, "later": [1]})
    assert codec.decode_to_child(newer) == control.Cancel(3)
    longer = msgspec.msgpack.encode([1, "idle", 0, 0, 0, 0, 0, -1, "later"])
    assert msgspec.msgpack.decode(longer, type=status.SlotStatus) == status.SlotStatus(1, "idle")


def test_a_missing_field_has_its_default() -> None:
    shorter = msgspec.msgpack.encode([4, "text"])
    assert msgspec.msgpack.decode(shorter, type=generate.Delta) == generate.Delta(4, "text")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode({}),
        msgspec.msgpack.encode({"type": "no such message"}),
        msgspec.msgpack.encode({"type": "cancel"}),
        msgspec.msgpack.encode({"type": "cancel", "request": "three"}),
        msgspec.msgpack.encode({"type": "update_status", "revision": 1, "state": "no such state"}),
        codec.encode(control.Cancel(1))[:-1],
        codec.encode(control.Cancel(1)) + b"x",
    ],
)
def test_everything_else_is_a_violation_that_names_the_peer(frame: bytes) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        codec.decode_to_child(frame)
    assert caught.value.peer == "router"
    with pytest.raises(ProtocolViolation) as caught:
        codec.decode_from_child(frame, "w3/17")
    assert caught.value.peer == "w3/17"


def test_messages_for_the_other_direction_are_violations() -> None:
    with pytest.raises(ProtocolViolation):
        codec.decode_to_child(codec.encode(generate.StepOutput(1, ())))
    with pytest.raises(ProtocolViolation):
        codec.decode_from_child(codec.encode(control.Cancel(1)), "w1/1")


def test_a_token_costs_few_bytes() -> None:
    """One frame per decode step: four sequences, one token each."""
    frame = codec.encode(generate.StepOutput(100, tuple(generate.Delta(number, " word") for number in range(4))))
    assert len(frame) < 100

"""The one line that a child reads from its standard input before it does anything else."""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from protocol.errors import ProtocolViolation

LINE_LIMIT = 64 * 1024
"""Longest line in bytes; a longer one is a violation."""


class CurveKeys(Struct, frozen=True):
    """CURVE keys as Z85 text: the router's public key, and this child's own pair. Only where the transport is TCP."""

    server_public: str
    public: str
    secret: str


class Bootstrap(Struct, frozen=True, omit_defaults=True):
    """Where to connect and who to be.

    `address` is a ZeroMQ endpoint; `parent` the router's process id, 0 when a wrapper stands between the two.
    `secrets` are (name, value) pairs that must be neither in argv nor in the environment; workers get none.
    """

    address: str
    name: str
    epoch: int
    parent: int = 0
    curve: CurveKeys | None = None
    secrets: tuple[tuple[str, str], ...] = ()

    @property
    def identity(self) -> bytes:
        """The DEALER's routing id, `name/epoch`."""
        return identity_of(self.name, self.epoch)


_decoder = msgspec.json.Decoder(Bootstrap)


def identity_of(name: str, epoch: int) -> bytes:
    """The routing id of one incarnation of a child."""
    return f"{name}/{epoch}".encode()


def bootstrap_line(bootstrap: Bootstrap) -> bytes:
    """The line that the router writes, with its line break."""
    return msgspec.json.encode(bootstrap) + b"\n"


def read_bootstrap(fd: int) -> Bootstrap:
    """Read the line from `fd` and nothing behind it: what follows is the watch for the parent's end.

    Raises `ProtocolViolation("router", …)` at an early EOF, an endless line or a line that does not parse.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(fd, 1)
        if not byte:
            raise ProtocolViolation("router", "end of file instead of a bootstrap line")
        line += byte
        if len(line) > LINE_LIMIT:
            raise ProtocolViolation("router", f"bootstrap line longer than {LINE_LIMIT} bytes")
    try:
        return _decoder.decode(line)
    except msgspec.MsgspecError as error:
        raise ProtocolViolation("router", f"bootstrap line: {error}") from error

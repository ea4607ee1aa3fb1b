"""How a child introduces itself, and how the router answers."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

PROTOCOL_VERSION = 1
"""Raised whenever a message changes in a way that SPEC.md's version rule does not allow."""

Role = Literal["worker", "downloader"]


class Hello(Struct, frozen=True, tag="hello", omit_defaults=True):
    """The first frame of a child. The router cannot address a peer that it has not heard from."""

    protocol_version: int
    package_version: str
    pid: int
    role: Role


class Welcome(Struct, frozen=True, tag="welcome", omit_defaults=True):
    """The router accepts the child; work and control may follow."""

    protocol_version: int


class Refused(Struct, frozen=True, tag="refused", omit_defaults=True):
    """The router does not accept the child, which ends with `ExitCode.REFUSED`."""

    reason: str

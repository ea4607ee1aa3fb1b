"""Errors that cross the wire, the exit codes of children, and the errors of the protocol itself."""

from __future__ import annotations

import enum

from msgspec import Struct


class ErrorKind(enum.StrEnum):
    """What went wrong with one request; the HTTP layer maps each kind to a status and a type."""

    INVALID_REQUEST = "invalid_request"
    CONTEXT_EXCEEDED = "context_exceeded"
    NOT_FOUND = "not_found"
    NOT_SUPPORTED = "not_supported"
    CONFLICT = "conflict"
    OVERLOADED = "overloaded"
    UNAVAILABLE = "unavailable"
    DEADLINE = "deadline"
    CANCELLED = "cancelled"
    LOAD_FAILED = "load_failed"
    WORKER_DIED = "worker_died"
    READER_TOO_SLOW = "reader_too_slow"
    NO_SPACE = "no_space"
    INTERNAL = "internal"
    FORBIDDEN = "forbidden"
    """A hub refuses access: gated, private, or a token that is not accepted."""


class WireError(Struct, frozen=True, omit_defaults=True):
    """Why one request, load or job failed, in words for its user.

    `param` names the offending request field, if one did. The two token counts belong to
    `context_exceeded`. `retry_after` is an estimate in seconds, 0 when there is none.
    """

    kind: ErrorKind
    message: str
    param: str = ""
    n_prompt_tokens: int = 0
    n_ctx: int = 0
    retry_after: float = 0.0


class ExitCode(enum.IntEnum):
    """Exit codes of children, so that the router can tell a refusal from a crash."""

    OK = 0
    CRASH = 1
    USAGE = 2
    LOAD_FAILED = 64
    REFUSED = 65
    ENGINE_FAILED = 66
    OUT_OF_MEMORY = 67
    PARENT_GONE = 68
    CONNECTION_LOST = 69


class ProtocolViolation(Exception):
    """A peer sent what the protocol does not allow; `peer` says who."""

    def __init__(self, peer: str, detail: str) -> None:
        super().__init__(f"{peer}: {detail}")
        self.peer = peer
        self.detail = detail

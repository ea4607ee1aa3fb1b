"""The error of a prompt that cannot be made."""

from __future__ import annotations

from protocol.errors import ErrorKind, WireError


class PromptError(Exception):
    """A conversation, template or parameter that cannot become a prompt; `error` is what its user is told."""

    def __init__(self, message: str, param: str = "", kind: ErrorKind = ErrorKind.INVALID_REQUEST) -> None:
        super().__init__(message)
        self.error = WireError(kind=kind, message=message, param=param)

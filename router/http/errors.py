"""Errors as clients see them: one exception, and its body in each dialect's own shape."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from protocol.errors import ErrorKind, WireError


class Dialect(enum.StrEnum):
    """Whose shapes a route speaks. OpenAI and native llama-server errors look alike."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"


class ApiError(Exception):
    """A request that ends with an error status.

    `param` is the path of the offending field. `retry_after` is seconds, 0 for none. `extra` are further members of
    the OpenAI error object.
    """

    def __init__(
        self,
        status: int,
        type: str,
        message: str,
        *,
        param: str = "",
        retry_after: float = 0.0,
        extra: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.extra = extra or {}

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Response headers beside the content type."""
        if self.retry_after <= 0:
            return []
        return [(b"retry-after", str(math.ceil(self.retry_after)).encode())]


class ClientGone(Exception):
    """The client closed its connection before an answer was due: nothing can be sent any more."""


STATUS = {
    ErrorKind.INVALID_REQUEST: (400, "invalid_request_error"),
    ErrorKind.CONTEXT_EXCEEDED: (400, "exceed_context_size_error"),
    ErrorKind.NOT_FOUND: (404, "not_found_error"),
    ErrorKind.NOT_SUPPORTED: (501, "not_supported_error"),
    ErrorKind.CONFLICT: (409, "conflict_error"),
    ErrorKind.OVERLOADED: (429, "rate_limit_error"),
    ErrorKind.UNAVAILABLE: (503, "unavailable_error"),
    ErrorKind.DEADLINE: (408, "timeout_error"),
    ErrorKind.CANCELLED: (499, "cancelled_error"),
    ErrorKind.LOAD_FAILED: (503, "load_failed_error"),
    ErrorKind.WORKER_DIED: (503, "worker_died_error"),
    ErrorKind.READER_TOO_SLOW: (503, "reader_too_slow"),
    ErrorKind.NO_SPACE: (507, "insufficient_storage_error"),
    ErrorKind.INTERNAL: (500, "server_error"),
    ErrorKind.FORBIDDEN: (403, "permission_error"),
}
"""Status and OpenAI/llama-server type of each kind. 500 is for faults of the gateway and the engine alone."""

_ANTHROPIC_TYPE = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    507: "overloaded_error",
}


def invalid(message: str, param: str = "") -> ApiError:
    """400: the request itself is wrong."""
    return ApiError(400, "invalid_request_error", message, param=param)


def not_found(message: str) -> ApiError:
    return ApiError(404, "not_found_error", message)


def not_supported(message: str) -> ApiError:
    return ApiError(501, "not_supported_error", message)


def model_not_found(name: str, nearest: Sequence[str] = ()) -> ApiError:
    hint = f"; did you mean {' or '.join(repr(known) for known in nearest)}?" if nearest else ""
    return ApiError(404, "not_found_error", f"model '{name}' not found{hint}", param="model")


def too_large(limit: int) -> ApiError:
    return ApiError(413, "request_too_large", f"the request body is larger than {limit} bytes")


def from_wire(error: WireError) -> ApiError:
    """The client's view of an error that a worker or the scheduler reported."""
    status, type_ = STATUS[error.kind]
    extra = {}
    if error.kind is ErrorKind.CONTEXT_EXCEEDED:
        extra = {"n_prompt_tokens": error.n_prompt_tokens, "n_ctx": error.n_ctx}
    retry_after = error.retry_after
    if error.kind in (ErrorKind.OVERLOADED, ErrorKind.UNAVAILABLE) and retry_after <= 0:
        retry_after = 1.0
    return ApiError(status, type_, error.message, param=error.param, retry_after=retry_after, extra=extra)


def body(dialect: Dialect, error: ApiError) -> bytes:
    """The JSON body of an error response."""
    return msgspec.json.encode(_SHAPES[dialect](error))


def _openai(error: ApiError) -> dict[str, Any]:
    shape: dict[str, Any] = {"code": error.status, "message": error.message, "type": error.type}
    if error.param:
        shape["param"] = error.param
    shape.update(error.extra)
    return {"error": shape}


def _anthropic(error: ApiError) -> dict[str, Any]:
    type_ = _ANTHROPIC_TYPE.get(error.status, "api_error")
    return {"type": "error", "error": {"type": type_, "message": error.message}}


def _ollama(error: ApiError) -> dict[str, Any]:
    return {"error": error.message}


_SHAPES = {Dialect.OPENAI: _openai, Dialect.ANTHROPIC: _anthropic, Dialect.OLLAMA: _ollama}

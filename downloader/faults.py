"""Why a job ended, as exceptions on the job's side and as one message between job and downloader."""

from __future__ import annotations

from protocol.errors import ErrorKind, WireError


class DownloadFault(Exception):
    """A job cannot go on.

    `retryable`: trying again may help. `automatic`: the downloader tries again by itself. `changed`: the plan no
    longer holds and has to be made anew. `retry_after` is seconds that the hub asked for, 0 for none.
    """

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        retryable: bool = False,
        automatic: bool = False,
        changed: bool = False,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retryable = retryable or automatic
        self.automatic = automatic
        self.changed = changed
        self.retry_after = retry_after

    @property
    def wire(self) -> WireError:
        return WireError(self.kind, self.message, retry_after=self.retry_after)


def invalid(message: str) -> DownloadFault:
    """The request itself is wrong."""
    return DownloadFault(ErrorKind.INVALID_REQUEST, message)


def transient(message: str, retry_after: float = 0.0) -> DownloadFault:
    """The network or the hub had a bad moment."""
    return DownloadFault(ErrorKind.UNAVAILABLE, message, automatic=True, retry_after=retry_after)

"""Exit codes of the commands, the same for all of them."""

from __future__ import annotations

import enum


class Exit(enum.IntEnum):
    OK = 0
    FAILED = 1
    """The gateway answered with an error."""
    USAGE = 2
    """Wrong options or a configuration that cannot be used."""
    UNREACHABLE = 3
    """No gateway at the address."""
    DENIED = 4
    """The key is missing, wrong or not allowed to do this."""
    NOT_FOUND = 5
    """No such model, download or request."""
    UNHEALTHY = 6
    """The gateway is there but not ready."""
    INTERRUPTED = 130

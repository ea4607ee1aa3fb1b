"""Which web pages may call, and under which host name: the defence against pages that reach for a local server."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

LOCALHOST = "localhost"
"""The value of `--cors-origins` that stands for loopback origins and the schemes of desktop applications."""

APP_SCHEMES = frozenset({"app", "capacitor", "ionic", "tauri", "vscode-webview", "vscode-file"})
_WEB_SCHEMES = frozenset({"http", "https"})
_REMEMBERED = 256
"""Host names that need not be taken apart again: each request has one, and nearly all have the same."""


@lru_cache(_REMEMBERED)
def is_loopback_name(host: str) -> bool:
    """Whether a host name (no port, brackets removed) can only mean this machine."""
    if host.lower().rstrip(".") == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@lru_cache(_REMEMBERED)
def split_host(header: str) -> str:
    """The host of a `Host` header without port and brackets; empty if it is malformed."""
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


def is_loopback_origin(origin: str) -> bool:
    """Whether a page of this origin comes from this machine, or from a desktop application on it."""
    try:
        parts = urlsplit(origin)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.scheme in APP_SCHEMES:
        return True
    return parts.scheme in _WEB_SCHEMES and is_loopback_name(host)


def allowed_origin(origin: str, configured: Sequence[str]) -> str | None:
    """The value of `Access-Control-Allow-Origin` for a request with this `Origin`, None to send no such header.

    `configured` holds exact origins, `*`, or `localhost`.
    """
    if not origin:
        return None
    if "*" in configured or origin in configured:
        return origin
    return origin if LOCALHOST in configured and is_loopback_origin(origin) else None


def host_allowed(header: str, own_names: Sequence[str]) -> bool:
    """Whether a request on a loopback socket was meant for it, and not sent there by a rebound DNS name."""
    host = split_host(header)
    return is_loopback_name(host) or host in own_names

"""The decision about one request: method, path and key. Pure; what the table does not name is denied."""

from __future__ import annotations

import enum

from router.security.keys import Key, KeyRing
from router.security.scopes import Access, Scope
from router.security.table import find_rule


class Verdict(enum.StrEnum):
    ALLOWED = "allowed"
    UNKNOWN = "unknown"
    """No such route: 404 for whoever may know."""
    UNAUTHENTICATED = "unauthenticated"
    """A key is needed, and none or a wrong one came: 401."""
    FORBIDDEN = "forbidden"
    """The key is good, its scopes do not reach: 403."""


class AccessPolicy:
    """Judges requests. With an empty ring everything that the table knows is allowed."""

    def __init__(self, ring: KeyRing, *, public_metrics: bool = False) -> None:
        self._ring = ring
        self._public_metrics = public_metrics

    def use(self, ring: KeyRing) -> None:
        """Judge by other keys from now on."""
        self._ring = ring

    @property
    def needs_key(self) -> bool:
        return bool(self._ring)

    def judge(self, method: str, path: str, presented: str) -> tuple[Verdict, Key | None]:
        """The verdict, and the key where a good one was presented."""
        key = self._ring.find(presented) if self._ring else None
        access = self._access(method, path)
        if access is Access.PUBLIC:
            return Verdict.ALLOWED, key
        if self._ring and key is None:
            # Also for unknown paths: what exists is nobody's business without a key.
            return Verdict.UNAUTHENTICATED, None
        if access is None:
            return Verdict.UNKNOWN, key
        if key is not None and not key.grants(access):
            return Verdict.FORBIDDEN, key
        return Verdict.ALLOWED, key

    def may(self, key: Key | None, scope: Scope) -> bool:
        """For what hangs on more than the path (`?reload=1`, texts in slots): whether this caller has the scope."""
        return not self._ring or (key is not None and scope in key.scopes)

    def _access(self, method: str, path: str) -> Access | None:
        rule = find_rule(method, path)
        if rule is None:
            return None
        return Access.PUBLIC if self._public_metrics and rule.template == "/metrics" else rule.access

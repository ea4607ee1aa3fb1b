"""API keys: kept as keyed hashes, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from router.security.scopes import ALL_SCOPES, OPENED_BY, Access, Scope

MAX_KEY_LENGTH = 1024
"""Characters of a presented key that are looked at all; longer ones are wrong."""


class InvalidKey(ValueError):
    """A key definition cannot be used; the message never holds the key itself."""


@dataclass(frozen=True, slots=True)
class KeySpec:
    """One key as configured. `models` are shell patterns, none = all; `concurrency` requests at once, 0 = unlimited."""

    secret: str
    name: str
    scopes: frozenset[Scope] = ALL_SCOPES
    models: tuple[str, ...] = ()
    concurrency: int = 0

    def __repr__(self) -> str:
        return f"KeySpec(name={self.name!r})"


@dataclass(frozen=True, slots=True)
class Key:
    """One key as the running gateway knows it: everything but the secret."""

    name: str
    scopes: frozenset[Scope]
    models: tuple[str, ...]
    concurrency: int

    def grants(self, access: Access) -> bool:
        """Whether the key opens a route that asks for `access`."""
        return access is Access.PUBLIC or bool(self.scopes & OPENED_BY[access])

    def may_use(self, *names: str) -> bool:
        """Whether the key is for a model that goes by these names (the one sent, the one it stands for)."""
        return not self.models or any(fnmatchcase(name, pattern) for name in names for pattern in self.models)


class KeyRing:
    """All keys. An empty ring means that the gateway asks for none."""

    def __init__(self, specs: Iterable[KeySpec] = ()) -> None:
        # The hash is keyed with a value of this process alone, so that a memory dump cannot be looked up in a table.
        self._pepper = secrets.token_bytes(32)
        self._entries: list[tuple[bytes, Key]] = []
        names: set[str] = set()
        digests: set[bytes] = set()
        for spec in specs:
            if not spec.secret or len(spec.secret) > MAX_KEY_LENGTH:
                raise InvalidKey(f"key {spec.name!r}: a key has 1 to {MAX_KEY_LENGTH} characters")
            digest = self._digest(spec.secret)
            if spec.name in names:
                raise InvalidKey(f"two keys are called {spec.name!r}")
            if digest in digests:
                raise InvalidKey(f"key {spec.name!r} is given twice")
            names.add(spec.name)
            digests.add(digest)
            self._entries.append((digest, Key(spec.name, spec.scopes, spec.models, spec.concurrency)))

    def __bool__(self) -> bool:
        return bool(self._entries)

    def __iter__(self) -> Iterator[Key]:
        return iter([key for _, key in self._entries])

    def find(self, presented: str) -> Key | None:
        """The key that was presented. Takes the same time whichever entry matches, or none."""
        if not presented or len(presented) > MAX_KEY_LENGTH:
            return None
        digest = self._digest(presented)
        found: Key | None = None
        for known, key in self._entries:
            if hmac.compare_digest(known, digest):
                found = key
        return found

    def _digest(self, secret: str) -> bytes:
        return hashlib.blake2b(secret.encode("utf-8", "surrogateescape"), key=self._pepper, digest_size=32).digest()


def presented_key(authorization: str | None, x_api_key: str | None) -> str:
    """The key a request brings: `Authorization` (with or without `Bearer `), and only without it `X-Api-Key`."""
    value = (authorization or "").strip()
    if not value:
        return (x_api_key or "").strip()
    scheme, _, rest = value.partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else value

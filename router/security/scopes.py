"""What a key lets one do, and what a route asks for."""

from __future__ import annotations

import enum


class Scope(enum.StrEnum):
    """What a key holds."""

    INFER = "infer"
    """Use models: chat, completions, embeddings, tokens, one's own streams."""
    OBSERVE = "observe"
    """See numbers: metrics, queue, states, events, slots without their text."""
    MANAGE = "manage"
    """Change things and read logs: load, unload, pin, pull, delete, reload. Sees what `observe` sees."""


ALL_SCOPES = frozenset(Scope)


class Access(enum.StrEnum):
    """What a route asks for. Every route names one; there is no default."""

    PUBLIC = "public"
    """No key at all: health, the dashboard's files."""
    ANY = "any"
    """Any valid key: what a client must know to choose a model."""
    INFER = "infer"
    OBSERVE = "observe"
    MANAGE = "manage"


OPENED_BY: dict[Access, frozenset[Scope]] = {
    Access.ANY: ALL_SCOPES,
    Access.INFER: frozenset({Scope.INFER}),
    Access.OBSERVE: frozenset({Scope.OBSERVE, Scope.MANAGE}),
    Access.MANAGE: frozenset({Scope.MANAGE}),
}
"""The scopes of which any one suffices. `PUBLIC` is absent: it is asked of nobody."""

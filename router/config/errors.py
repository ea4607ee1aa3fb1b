"""Errors of configuration, each with a sentence that says what to do."""

from __future__ import annotations


class ConfigError(Exception):
    """The configuration as a whole cannot be used: the gateway does not start, a reload changes nothing."""


class BadValue(Exception):
    """One option has a value that it cannot have."""


class BadHeader(Exception):
    """A file is not a GGUF that can be read."""


class UnknownModel(Exception):
    """No model has this name; `nearest` are names that look like it."""

    def __init__(self, name: str, nearest: tuple[str, ...] = ()) -> None:
        super().__init__(f"model '{name}' not found")
        self.name = name
        self.nearest = nearest

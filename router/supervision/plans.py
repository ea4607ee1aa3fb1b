"""What supervision needs of the configuration."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Protocol

from protocol.load import Load
from router.scheduling.model import ModelEntry
from router.supervision.environment import worker_environment
from router.supervision.process import Command, python_command


class Plans(Protocol):
    """What to load and how to start its worker, by load key."""

    def load(self, key: str) -> Load:
        """What a worker is told to load. Raises `KeyError` for a model that is not configured any more."""
        ...

    def environment(self, key: str) -> dict[str, str]:
        """What a worker's environment has beside that of every worker. Raises `KeyError`."""
        ...

    def entries(self) -> tuple[ModelEntry, ...]: ...


class NoPlans:
    """Before the first configuration."""

    def load(self, key: str) -> Load:
        raise KeyError(key)

    def environment(self, key: str) -> dict[str, str]:
        raise KeyError(key)

    def entries(self) -> tuple[ModelEntry, ...]:
        return ()


WorkerCommand = Callable[[Mapping[str, str]], Command]
"""Makes the command of a worker from the variables of its preset."""


def real_worker(extra: Mapping[str, str]) -> Command:
    """The worker of this package, by this interpreter."""
    return python_command("worker", worker_environment(os.environ, extra.items()))

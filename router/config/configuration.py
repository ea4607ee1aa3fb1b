"""The configuration of a running gateway: read at start, and again when it is told to."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Mapping

from router.config.assembly import Inputs
from router.config.builder import build
from router.config.catalogue import Catalogue
from router.config.effective import parse, settings_from, settle
from router.config.errors import BadValue, ConfigError
from router.config.headers import HeaderCache
from router.config.lookup import from_environment
from router.config.machine import Machine, look
from router.config.option import Assignment, Target
from router.config.settings import Settings
from router.scheduling.model import Policy


@dataclasses.dataclass
class Configuration:
    """Settings and machine stand for the life of the gateway; the catalogue is replaced by `reload`."""

    settings: Settings
    machine: Machine
    catalogue: Catalogue
    warnings: tuple[str, ...]
    """Said once at start."""
    inputs: Inputs
    headers: HeaderCache
    given: tuple[Assignment, ...] = ()
    """Values of the command line and the environment that count."""
    _reloading: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    def reload(self) -> Catalogue:
        """Read presets, folders and the hub cache again, headers of what is new included.

        Raises `ConfigError`, and then nothing has changed. Blocks: use a thread. Two at a time take turns, so that the
        later one never ends with what the earlier one saw.
        """
        with self._reloading:
            catalogue = build(self.inputs, self.headers, read_cached=True)
            self.catalogue = catalogue
        return catalogue

    @property
    def unread(self) -> bool:
        """Whether some cached models are listed without facts: a `reload` in the background reads their headers."""
        return any(model.key and model.facts is None for model in self.catalogue.models.values())

    def policy(self) -> Policy:
        """The scheduler's settings with what was left to the machine filled in."""
        budget = self.settings.memory_budget
        if budget is None:
            budget = self.machine.budget
        spares = self.settings.spare_workers
        if spares is None:
            # On a GPU build even a worker without a model may hold device memory.
            spares = 0 if self.machine.gpu else 1
        return self.settings.policy(budget, self.threads, spares)

    @property
    def threads(self) -> int:
        """Cores that workers share."""
        return self.catalogue.threads or self.machine.threads


def configure(
    given: tuple[Assignment, ...] = (),
    environ: Mapping[str, str] = os.environ,
    machine: Machine | None = None,
    *,
    read_cached: bool = False,
) -> Configuration:
    """Settle the command line over the environment, then read the models. Raises `ConfigError`."""
    try:
        effective = settle(from_environment(environ), given)
        warnings = _check(effective.all())
        settings = settings_from(effective)
    except BadValue as error:
        raise ConfigError(str(error)) from None
    settings = _checked(settings)
    machine = machine if machine is not None else look()
    models = tuple(item for item in effective.all() if item.option.target not in (Target.SERVER, Target.IGNORED))
    inputs = Inputs(settings, models, machine, environ)
    headers = HeaderCache()
    catalogue = build(inputs, headers, read_cached=read_cached)
    return Configuration(
        settings, machine, catalogue, (*warnings, *catalogue.warnings), inputs, headers, effective.all()
    )


def _check(items: tuple[Assignment, ...]) -> tuple[str, ...]:
    """Refuses what is not offered and every bad value; names ignored flags in one warning."""
    ignored: list[str] = []
    for item in items:
        if item.option.target is Target.REFUSED:
            raise BadValue(f"{item.origin} is not supported: {item.option.reason}")
        parse(item)
        if item.option.target is Target.IGNORED:
            ignored.append(f"{item.origin} ({item.option.reason})")
    return (f"without effect here: {', '.join(ignored)}",) if ignored else ()


def _checked(settings: Settings) -> Settings:
    """What no single value shows: settings that contradict one another."""
    if bool(settings.ssl_key_file) != bool(settings.ssl_cert_file):
        raise ConfigError("TLS needs both --ssl-key-file and --ssl-cert-file")
    if settings.api_prefix and (not settings.api_prefix.startswith("/") or settings.api_prefix.endswith("/")):
        raise ConfigError("--api-prefix begins with a slash and does not end with one, e.g. /llm")
    if not settings.host:
        raise ConfigError("--host names no address")
    if settings.models_max == 0 and settings.memory_budget == ():
        raise ConfigError("--memory-budget names no size")
    return settings

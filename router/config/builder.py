"""Builds the catalogue from all sources of models and everything that was configured for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from router.config.assembly import Assembler, Inputs, threads_of
from router.config.candidates import Candidate, candidates
from router.config.catalogue import Catalogue
from router.config.effective import settle
from router.config.errors import ConfigError
from router.config.headers import HeaderCache
from router.config.hub_cache import cache_folder, scan_hub_cache
from router.config.model import Model
from router.config.option import Target
from router.config.presets import PresetFile, read_presets
from router.config.settings import Settings


def build(inputs: Inputs, headers: HeaderCache, *, read_cached: bool = False) -> Catalogue:
    """Read all sources. Blocks for the time that takes; run it in a thread once the gateway serves.

    Headers of models in the hub cache are read only if `read_cached`, since there may be many: without it their facts
    are those that `headers` knows already. Raises `ConfigError` where nothing sensible can be built.
    """
    presets = read_presets(inputs.settings.models_preset) if inputs.settings.models_preset else PresetFile()
    own = tuple(item for item in inputs.given if item.option.target is Target.SOURCE)
    shared = tuple(item for item in inputs.given if item.option.target is not Target.SOURCE)
    warnings = list(presets.warnings)
    # Looked at even with --no-hf-cache: a preset may still name a repository.
    cached = scan_hub_cache(cache_folder(inputs.environ))
    found = candidates(inputs.settings, presets, cached, own, warnings)
    assembler = Assembler(inputs, headers, presets.everywhere, shared, cached, read_cached)
    models = [assembler.model(candidate) for candidate in found.values()]
    models = _hide_duplicates(_settle_names(models, found))
    single = _single(inputs.settings, found)
    warnings.extend(_overridden(models))
    warnings.extend(f"the model '{model.id}' cannot be served: {model.error}" for model in models if model.error)
    return Catalogue(
        tuple(models),
        default=_default(inputs.settings, models),
        single=single,
        threads=threads_of(settle(presets.everywhere.assignments, shared)),
        warnings=tuple(warnings),
    )


def _overridden(models: Iterable[Model]) -> Iterable[str]:
    """Keys of presets that the command line or the environment overrides, one line per option."""
    found: dict[tuple[str, str], list[str]] = {}
    for model in models:
        for item in model.overridden:
            if item.lost.origin.startswith("[") and not item.won.origin.startswith("["):
                origins = found.setdefault((item.won.origin, item.won.text), [])
                if item.lost.origin not in origins:
                    origins.append(item.lost.origin)
    for (origin, text), origins in found.items():
        yield f"{origin} {text} overrides the presets: {', '.join(origins)}"


def _settle_names(models: Iterable[Model], found: Mapping[str, Candidate]) -> list[Model]:
    """Ids stand; an alias that is taken makes its model fail, not the one that had the name before."""
    taken = dict.fromkeys(found, "")
    settled: list[Model] = []
    for model in models:
        clash = next((alias for alias in model.aliases if alias in taken), "")
        if clash:
            holder = taken[clash] or clash
            reason = f"the alias '{clash}' is taken by the model '{holder}'"
            model = msgspec.structs.replace(
                model, aliases=(), key="", parameters=None, predictions=(), error=model.error or reason
            )
        for alias in model.aliases:
            taken[alias] = model.id
        settled.append(model)
    return settled


def _hide_duplicates(models: list[Model]) -> list[Model]:
    """Cached models whose file a preset with `dedup-cache-models` uses are still callable, but not listed."""
    used = {model.path for model in models if model.traits.dedup_cache_models and model.path}
    return [
        msgspec.structs.replace(model, listed=False) if model.source == "cache" and model.path in used else model
        for model in models
    ]


def _single(settings: Settings, found: Mapping[str, Candidate]) -> str:
    """The one model of the command line, if there is no other source of models."""
    if settings.models_dir or settings.models_preset:
        return ""
    return next((name for name, candidate in found.items() if candidate.source == "command_line"), "")


def _default(settings: Settings, models: list[Model]) -> str:
    wanted = settings.default_model
    if wanted:
        for model in models:
            if wanted in model.names:
                return model.id
        raise ConfigError(f"--default-model: there is no model '{wanted}'")
    return next((model.id for model in models if model.source == "command_line"), "")

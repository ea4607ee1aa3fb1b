"""Which models there are, before anything is known of them but where their files are."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from router.config.catalogue import canonical
from router.config.effective import settle
from router.config.errors import BadValue, ConfigError
from router.config.facts import SHARD
from router.config.option import Assignment, Target
from router.config.presets import PresetFile, Section
from router.config.settings import Settings
from router.config.sources import Found, scan_models_dir


class Candidate(Struct, frozen=True):
    """A model before its values are settled. `found` is what its source knows of it, `section` its preset."""

    id: str
    source: str
    found: Found | None = None
    section: Section | None = None
    own: tuple[Assignment, ...] = ()
    """Values of the command line that are this model's alone: its file and its names."""


def candidates(
    settings: Settings,
    presets: PresetFile,
    cached: tuple[Found, ...],
    own: tuple[Assignment, ...],
    warnings: list[str],
) -> dict[str, Candidate]:
    """Every model by id. Of one id, a later source adds to an earlier one: cache, folder, presets, command line."""
    named = _named_on_command_line(own, warnings)
    alone = named is not None and not settings.models_dir and not settings.models_preset
    found: dict[str, Candidate] = {}
    if settings.hf_cache and not alone:
        for model in cached:
            found[model.id] = Candidate(model.id, model.source, model)
    if settings.models_dir:
        for model in scan_models_dir(settings.models_dir):
            found[model.id] = Candidate(model.id, model.source, model)
    for section in presets.sections:
        base = found.pop(section.name, None) or found.pop(canonical(section.name), None)
        found[section.name] = Candidate(section.name, "preset", base.found if base else None, section)
    if named is not None:
        if named.id in found:
            warnings.append(
                f"the model '{named.id}' of the command line takes the place of the one configured elsewhere"
            )
            del found[named.id]
        found[named.id] = named
    return found


def _named_on_command_line(own: tuple[Assignment, ...], warnings: list[str]) -> Candidate | None:
    effective = settle(own)
    try:
        path = effective.text(Target.SOURCE, "model")
        repository = effective.text(Target.SOURCE, "hf_repo")
        names = effective.words(Target.SOURCE, "alias")
    except BadValue as error:
        raise ConfigError(str(error)) from None
    if not path and not repository:
        if own:
            flags = ", ".join(item.option.flags[-1] for item in own)
            warnings.append(f"{flags}: without --model or --hf-repo this has no effect")
        return None
    if path:
        shard = SHARD.match(Path(path).name)
        fallback = shard["stem"] if shard is not None else Path(path).name.removesuffix(".gguf")
    else:
        fallback = repository
    return Candidate(names[0] if names else fallback, "command_line", own=own)

"""Builds the catalogue from all sources of models and everything that was configured for them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from protocol.load import LoadParameters
from router.config.catalogue import Catalogue, canonical
from router.config.effective import (
    Effective,
    load_parameters_from,
    request_from,
    settle,
    traits_from,
    worker_from,
)
from router.config.errors import BadHeader, BadValue, ConfigError
from router.config.facts import SHARD, Identity, ModelFacts, identify, shards
from router.config.ggml import CACHE_TYPES
from router.config.headers import HeaderCache, Unreadable
from router.config.hub_cache import cache_folder, scan_hub_cache
from router.config.load_key import files_of, load_key
from router.config.lookup import assign
from router.config.machine import Machine
from router.config.model import Model
from router.config.option import Assignment, Target
from router.config.predict import HOST, Prediction, choose_context, predict
from router.config.presets import PresetFile, Section, read_presets
from router.config.settings import Settings
from router.config.sources import Found, scan_models_dir

_LISTS = {"preset": "presets", "models_dir": "dir", "cache": "cache"}
_UNQUANTISED = ("f32", "f16", "bf16")


class Inputs(Struct, frozen=True):
    """What a catalogue is built from, beside the files. `given` are the command line's and environment's values."""

    settings: Settings
    given: tuple[Assignment, ...]
    machine: Machine
    environ: Mapping[str, str]


class _Candidate(Struct, frozen=True):
    """A model before its values are settled. `found` is what its source knows of it, `section` its preset."""

    id: str
    source: str
    found: Found | None = None
    section: Section | None = None
    own: tuple[Assignment, ...] = ()
    """Values of the command line that are this model's alone: its file and its names."""


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
    candidates = _candidates(inputs.settings, presets, cached, own, warnings)
    assembler = _Assembler(inputs, headers, presets.everywhere, shared, cached, read_cached)
    models = [assembler.model(candidate) for candidate in candidates.values()]
    models = _hide_duplicates(_settle_names(models, candidates))
    single = _single(inputs.settings, candidates)
    return Catalogue(
        tuple(models), default=_default(inputs.settings, models, own), single=single, warnings=tuple(warnings)
    )


def _candidates(
    settings: Settings,
    presets: PresetFile,
    cached: tuple[Found, ...],
    own: tuple[Assignment, ...],
    warnings: list[str],
) -> dict[str, _Candidate]:
    """Every model by id. Of one id, a later source adds to an earlier one: cache, folder, presets, command line."""
    named = _named_on_command_line(own, warnings)
    alone = named is not None and not settings.models_dir and not settings.models_preset
    found: dict[str, _Candidate] = {}
    if settings.hf_cache and not alone:
        for model in cached:
            found[model.id] = _Candidate(model.id, model.source, model)
    if settings.models_dir:
        for model in scan_models_dir(settings.models_dir):
            found[model.id] = _Candidate(model.id, model.source, model)
    for section in presets.sections:
        base = found.pop(section.name, None) or found.pop(canonical(section.name), None)
        found[section.name] = _Candidate(section.name, "preset", base.found if base else None, section)
    if named is not None:
        if named.id in found:
            warnings.append(
                f"the model '{named.id}' of the command line takes the place of the one configured elsewhere"
            )
            del found[named.id]
        found[named.id] = named
    return found


def _named_on_command_line(own: tuple[Assignment, ...], warnings: list[str]) -> _Candidate | None:
    effective = settle(own)
    try:
        path = effective.text(Target.SOURCE, "model")
        repository = effective.text(Target.SOURCE, "hf_repo")
        names = _words(effective, "alias")
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
    return _Candidate(names[0] if names else fallback, "command_line", own=own)


class _Assembler:
    """Settles the values of one model after the other."""

    def __init__(
        self,
        inputs: Inputs,
        headers: HeaderCache,
        everywhere: Section,
        shared: tuple[Assignment, ...],
        cached: tuple[Found, ...],
        read_cached: bool,
    ) -> None:
        self._lists = inputs.settings.listed
        self._machine = inputs.machine
        self._headers = headers
        self._everywhere = everywhere
        self._shared = shared
        self._cached = {canonical(model.id): model for model in cached}
        self._read_cached = read_cached
        self._budget = dict(inputs.settings.memory_budget or inputs.machine.budget)

    def model(self, candidate: _Candidate) -> Model:
        """The model; one that cannot be served carries the reason."""
        section = candidate.section or Section(candidate.id, 0)
        effective = settle(
            _from_source(candidate.found),
            self._everywhere.assignments,
            section.assignments,
            self._shared,
            candidate.own,
        )
        environment = dict(self._everywhere.environment) | dict(section.environment)
        model = Model(
            candidate.id,
            candidate.source,
            environment=tuple(sorted(environment.items())),
            assignments=effective.all(),
            overridden=effective.overridden,
        )
        try:
            model = msgspec.structs.replace(
                model,
                aliases=tuple(name for name in _words(effective, "alias") if name != candidate.id),
                tags=_words(effective, "tags"),
                traits=traits_from(effective),
            )
            model = msgspec.structs.replace(model, listed=self._is_listed(model))
            if section.error:
                raise BadValue(section.error)
            return self._loadable(model, effective, candidate.found)
        except BadValue as error:
            return msgspec.structs.replace(model, error=str(error))

    def _loadable(self, model: Model, effective: Effective, found: Found | None) -> Model:
        path = effective.text(Target.SOURCE, "model")
        repository = effective.text(Target.SOURCE, "hf_repo")
        if repository and not (path and found is None):
            cached = self._cached_model(repository, effective.text(Target.SOURCE, "hf_file"))
            if cached is None:
                return msgspec.structs.replace(model, missing=_reference(repository, effective))
            found, path = cached, cached.model
        if not path:
            raise BadValue("names no model: set 'model' to a GGUF file, or 'hf-repo' to a repository of the hub")
        mmproj = effective.text(Target.SOURCE, "mmproj")
        auto = effective.first(Target.SOURCE, "mmproj_auto")
        if auto is not None and auto.value is False:
            mmproj = ""
        elif not mmproj and found is not None and path == found.model:
            mmproj = found.mmproj
        parameters = load_parameters_from(effective, path, mmproj)
        parameters = self._placed(parameters, effective)
        worker = worker_from(effective)
        key = load_key(parameters, worker, model.environment, _identities(parameters))
        facts = self._facts(path, model.source)
        projector = self._companion(mmproj, "mmproj")
        draft = self._companion(parameters.draft.model_path, "model")
        gpu = self._machine.gpu if parameters.n_gpu_layers else ""
        predictions: tuple[Prediction, ...] = ()
        if facts is not None:
            if facts.kind != "model":
                raise BadValue(f"{path} is not a model but a file of type '{facts.kind}'")
            if effective.first(Target.LOAD, "embeddings") is None and _only_embeds(facts):
                parameters = msgspec.structs.replace(parameters, embeddings=True)
            if not parameters.ctx_size:
                usable = self._budget.get(gpu or HOST)
                parameters = msgspec.structs.replace(
                    parameters, ctx_size=choose_context(facts, parameters, bool(gpu), usable)
                )
            predictions = predict(facts, parameters, projector=projector, draft=draft, gpu=gpu)
        return msgspec.structs.replace(
            model,
            key=key,
            parameters=parameters,
            worker=worker,
            request=request_from(effective, facts.sampling if facts is not None else {}),
            facts=facts,
            projector=projector,
            predictions=predictions,
            on_gpu=bool(gpu),
        )

    def _is_listed(self, model: Model) -> bool:
        kind = _LISTS.get(model.source)
        return not model.traits.hidden and (kind is None or kind in self._lists)

    def _placed(self, parameters: LoadParameters, effective: Effective) -> LoadParameters:
        """Checks what the engine would refuse or silently do otherwise."""
        if parameters.devices == ("none",):
            parameters = msgspec.structs.replace(parameters, devices=(), n_gpu_layers=0)
        asked = effective.first(Target.LOAD, "n_gpu_layers")
        if not self._machine.gpu and not parameters.rpc:
            if parameters.devices or (asked is not None and parameters.n_gpu_layers > 0):
                raise BadValue(
                    "asks for a GPU, but there is no GPU that the installed engine could use "
                    f"(backends: {', '.join(self._machine.backends)})"
                )
            parameters = msgspec.structs.replace(parameters, n_gpu_layers=0)
        if parameters.flash_attn == "off" and parameters.cache_type_v not in _UNQUANTISED:
            raise BadValue(f"cache-type-v = {parameters.cache_type_v} needs flash attention, which is off")
        assert parameters.cache_type_k in CACHE_TYPES
        return parameters

    def _facts(self, path: str, source: str) -> ModelFacts | None:
        if source == "cache" and not self._read_cached:
            known = self._headers.known(path)
            if known is None:
                return None
        facts = self._headers.get(path)
        if isinstance(facts, Unreadable):
            raise BadValue(facts.reason)
        return facts

    def _companion(self, path: str, kind: str) -> ModelFacts | None:
        if not path:
            return None
        facts = self._headers.get(path)
        if isinstance(facts, Unreadable):
            raise BadValue(f"{Path(path).name}: {facts.reason}")
        if facts.kind != kind:
            raise BadValue(f"{path} is a file of type '{facts.kind}', not '{kind}'")
        return facts

    def _cached_model(self, repository: str, file: str) -> Found | None:
        """The cached model that a reference means; without a tag Q4_K_M, or else the first of the repository."""
        if file:
            matches = [model for model in self._cached.values() if model.model.endswith("/" + file)]
            wanted = repository.partition(":")[0] + ":"
            return next((model for model in matches if (model.id + ":").startswith(wanted)), None)
        exact = self._cached.get(canonical(repository))
        if exact is not None or ":" in repository:
            return exact
        preferred = self._cached.get(f"{repository}:Q4_K_M")
        if preferred is not None:
            return preferred
        return next((model for name, model in self._cached.items() if name.startswith(repository + ":")), None)


def _from_source(found: Found | None) -> tuple[Assignment, ...]:
    """What a folder or the cache says of a model, as the lowest layer of its values."""
    if found is None:
        return ()
    keys = (("model", found.model), ("mmproj", found.mmproj), ("spec-draft-model", found.draft))
    items = (assign(key, value, found.source.replace("_", "-")) for key, value in keys if value)
    return tuple(item for item in items if item is not None)


def _only_embeds(facts: ModelFacts) -> bool:
    """Whether a file says that it is for embeddings or ranking: such a model generates no text."""
    return not facts.causal or facts.pooling not in ("", "none")


def _reference(repository: str, effective: Effective) -> str:
    file = effective.text(Target.SOURCE, "hf_file")
    return f"{repository.partition(':')[0]}/{file}" if file else repository


def _words(effective: Effective, field: str) -> tuple[str, ...]:
    words: list[str] = []
    for item in effective.values.get((Target.SOURCE, field), ()):
        value = item.value
        if isinstance(value, tuple):
            words.extend(str(word) for word in value)
    return tuple(dict.fromkeys(words))


def _identities(parameters: LoadParameters) -> tuple[tuple[str, Identity], ...]:
    """The identity of every file that a worker opens. Raises `BadValue` for one that is not there."""
    paths = list(files_of(parameters))
    try:
        paths.extend(str(shard) for shard in shards(Path(parameters.model_path))[1:])
        found = tuple((path, identify(path)) for path in paths)
    except BadHeader as error:
        raise BadValue(str(error)) from None
    except OSError as error:
        raise BadValue(f"{error.strerror}: {error.filename}") from None
    unreadable = [path for path in paths if not os.access(path, os.R_OK)]
    if unreadable:
        raise BadValue(f"may not be read: {unreadable[0]}")
    return found


def _settle_names(models: Iterable[Model], candidates: Mapping[str, _Candidate]) -> list[Model]:
    """Ids stand; an alias that is taken makes its model fail, not the one that had the name before."""
    taken = dict.fromkeys(candidates, "")
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


def _single(settings: Settings, candidates: Mapping[str, _Candidate]) -> str:
    """The one model of the command line, if there is no other source of models."""
    if settings.models_dir or settings.models_preset:
        return ""
    return next((name for name, candidate in candidates.items() if candidate.source == "command_line"), "")


def _default(settings: Settings, models: list[Model], own: tuple[Assignment, ...]) -> str:
    wanted = settings.default_model
    if wanted:
        for model in models:
            if wanted in model.names:
                return model.id
        raise ConfigError(f"--default-model: there is no model '{wanted}'")
    return next((model.id for model in models if model.source == "command_line"), "")

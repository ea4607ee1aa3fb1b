"""Settles what was configured for one model, and checks that it can be loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from protocol.load import LoadParameters
from router.config.candidates import Candidate
from router.config.catalogue import canonical
from router.config.effective import (
    Effective,
    load_parameters_from,
    request_from,
    settle,
    traits_from,
    worker_from,
)
from router.config.errors import BadHeader, BadValue
from router.config.facts import Identity, ModelFacts, identify, shards
from router.config.headers import HeaderCache, Unreadable
from router.config.load_key import files_of, load_key
from router.config.lookup import assign
from router.config.machine import Machine
from router.config.model import Model
from router.config.option import Assignment, Target
from router.config.predict import HOST, choose_context, predict
from router.config.presets import Section
from router.config.projector import check_projector
from router.config.settings import Settings, state_folder
from router.config.sources import Found

_LISTS = {"preset": "presets", "models_dir": "dir", "cache": "cache"}
_UNQUANTISED = ("f32", "f16", "bf16")


class Inputs(Struct, frozen=True):
    """What a catalogue is built from, beside the files. `given` are the command line's and environment's values."""

    settings: Settings
    given: tuple[Assignment, ...]
    machine: Machine
    environ: Mapping[str, str]


class Assembler:
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
        self._settings = inputs.settings
        self._machine = inputs.machine
        self._headers = headers
        self._everywhere = everywhere
        self._shared = shared
        self._cached = {canonical(model.id): model for model in cached}
        self._read_cached = read_cached
        self._budget = dict(inputs.settings.memory_budget or inputs.machine.budget)

    def model(self, candidate: Candidate) -> Model:
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
                aliases=tuple(name for name in effective.words(Target.SOURCE, "alias") if name != candidate.id),
                tags=effective.words(Target.SOURCE, "tags"),
                traits=traits_from(effective),
            )
            model = msgspec.structs.replace(model, listed=self._is_listed(model))
            if section.error:
                raise BadValue(section.error)
            # Cores for this model alone; a number for all models is the number they share.
            reserved = threads_of(settle(section.assignments)) if not threads_of(settle(self._shared)) else 0
            model = msgspec.structs.replace(model, reserved_threads=reserved)
            return self._loadable(model, effective, candidate.found)
        except BadValue as error:
            return msgspec.structs.replace(model, error=str(error))

    def _loadable(self, model: Model, effective: Effective, found: Found | None) -> Model:
        """The model with everything that a worker needs. Raises `BadValue`."""
        path = effective.text(Target.SOURCE, "model")
        repository = effective.text(Target.SOURCE, "hf_repo")
        if repository and not (path and found is None):
            found = self._cached_model(repository, effective.text(Target.SOURCE, "hf_file"))
            if found is None:
                return msgspec.structs.replace(model, missing=_reference(repository, effective))
            path = found.model
        if not path:
            raise BadValue("names no model: set 'model' to a GGUF file, or 'hf-repo' to a repository of the hub")
        mmproj = effective.text(Target.SOURCE, "mmproj")
        if not mmproj and found is not None and path == found.model:
            mmproj = found.mmproj
        parameters = self._placed(load_parameters_from(effective, path, mmproj), effective)
        worker = worker_from(effective)
        key = load_key(parameters, worker, model.environment, _identities(parameters))
        if self._settings.kv_keep:
            folder = str(state_folder(self._settings) / "kv" / key)
            worker = msgspec.structs.replace(worker, kv_keep_dir=folder, kv_keep_bytes=self._settings.kv_keep)
        model = msgspec.structs.replace(
            model,
            key=key,
            parameters=parameters,
            worker=worker,
            request=request_from(effective, {}),
            on_gpu=bool(self._gpu(parameters)),
        )
        facts = self._facts(path, model.source)
        return model if facts is None else self._with_facts(model, effective, parameters, facts)

    def _with_facts(self, model: Model, effective: Effective, parameters: LoadParameters, facts: ModelFacts) -> Model:
        """The model with what its files' headers decide: what it is for, its context, its memory. Raises `BadValue`."""
        if facts.kind != "model":
            raise BadValue(f"{parameters.model_path} is not a model but a file of type '{facts.kind}'")
        if effective.first(Target.LOAD, "embeddings") is None and _only_embeds(facts):
            parameters = msgspec.structs.replace(parameters, embeddings=True)
        gpu = self._gpu(parameters)
        if not parameters.ctx_size:
            chosen = choose_context(facts, parameters, bool(gpu), self._budget.get(gpu or HOST))
            parameters = msgspec.structs.replace(parameters, ctx_size=chosen)
        projector = None if parameters.embeddings else self._companion(parameters.mmproj_path, "mmproj")
        if projector is not None:
            check_projector(facts, projector, parameters.model_path, parameters.mmproj_path)
        draft = self._companion(parameters.draft.model_path, "model")
        return msgspec.structs.replace(
            model,
            parameters=parameters,
            request=request_from(effective, facts.sampling),
            facts=facts,
            projector=projector,
            predictions=predict(
                facts,
                parameters,
                projector=projector,
                draft=draft,
                gpu=gpu,
                settings=model.worker,
                free=self._machine.memory,
            ),
        )

    def _gpu(self, parameters: LoadParameters) -> str:
        """The GPU that some of the model goes to, "" for none."""
        return self._machine.gpu if parameters.n_gpu_layers else ""

    def _is_listed(self, model: Model) -> bool:
        kind = _LISTS.get(model.source)
        return not model.traits.hidden and (kind is None or kind in self._settings.listed)

    def _placed(self, parameters: LoadParameters, effective: Effective) -> LoadParameters:
        """The parameters as they will be used. Raises `BadValue` for what the engine would refuse or change."""
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
    keys = (("model", found.model), ("mmproj", found.mmproj))
    items = (assign(key, value, found.source.replace("_", "-")) for key, value in keys if value)
    return tuple(item for item in items if item is not None)


def threads_of(effective: Effective) -> int:
    given = effective.first(Target.WORKER, "threads")
    count = given.value if given is not None else 0
    return count if isinstance(count, int) else 0


def _only_embeds(facts: ModelFacts) -> bool:
    """Whether a file says that it is for embeddings or ranking: such a model generates no text."""
    return not facts.causal or facts.pooling not in ("", "none")


def _reference(repository: str, effective: Effective) -> str:
    file = effective.text(Target.SOURCE, "hf_file")
    return f"{repository.partition(':')[0]}/{file}" if file else repository


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

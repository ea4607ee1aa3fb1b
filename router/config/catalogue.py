"""All models that clients may name, and how a name is resolved."""

from __future__ import annotations

import difflib
import fnmatch
import re
from collections import defaultdict
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from protocol.load import Load, VocabularyFacts
from router.config.errors import UnknownModel
from router.config.facts import ModelFacts
from router.config.model import Model
from router.scheduling.model import ModelEntry

LATEST = ":latest"
_TAG = re.compile(r"^(?P<stem>.+:)(?:.*[-.])?(?P<tag>[A-Za-z0-9_]+)$")


class Difference(Struct, frozen=True):
    """What a reload changes, by load key: workers of `gone` keys stop, those of `same` keys go on untouched."""

    added: tuple[str, ...]
    gone: tuple[str, ...]
    same: tuple[str, ...]
    names_added: tuple[str, ...]
    names_gone: tuple[str, ...]
    names_changed: tuple[str, ...]

    @property
    def empty(self) -> bool:
        return not (self.added or self.gone or self.names_added or self.names_gone or self.names_changed)


class Catalogue:
    """An immutable set of models. A reload makes another one."""

    def __init__(
        self,
        models: tuple[Model, ...],
        *,
        default: str = "",
        single: str = "",
        threads: int = 0,
        warnings: tuple[str, ...] = (),
    ) -> None:
        """`models` in the order in which names were given. `single` is the model that any name means, if there is one;
        `default` the one that no name means. `threads` are the cores that all share, 0 where nothing was said."""
        self.models = {model.id: model for model in models}
        self.default = default
        self.single = single
        self.threads = threads
        self.warnings = warnings
        self._names: dict[str, str] = {}
        self._patterns: list[tuple[str, str]] = []
        self._canonical: dict[str, str] = {}
        by_key: defaultdict[str, list[Model]] = defaultdict(list)
        for model in models:
            for name in model.names:
                if any(character in name for character in "*?["):
                    self._patterns.append((name, model.id))
                self._names[name] = model.id
                self._canonical.setdefault(canonical(name), model.id)
            if model.key:
                by_key[model.key].append(model)
        self._by_key = {key: tuple(found) for key, found in by_key.items()}

    def resolve(self, name: str | None) -> Model:
        """The model that a request means. Raises `UnknownModel`.

        1. In single-model mode any name, or none, means the one model.
        2. No name means the default model.
        3. An id or alias, exactly.
        4. `x` and `x:latest` are the same, and a tag's case does not matter (`user/repo:q4_k_m`).
        5. Aliases with wildcards, in the order of the configuration.
        """
        if self.single:
            return self.models[self._names.get(name or "", self.single)]
        if not name:
            if not self.default:
                raise UnknownModel("")
            return self.models[self.default]
        found = self._names.get(name) or self._alike(name)
        if found is None:
            raise UnknownModel(name, tuple(difflib.get_close_matches(name, self._names, n=3)))
        return self.models[found]

    def listed(self) -> tuple[Model, ...]:
        """Models that a list shows, by id."""
        return tuple(self.models[name] for name in sorted(self.models) if self.models[name].listed)

    def sharing(self, key: str) -> tuple[Model, ...]:
        """The models that one load key serves."""
        return self._by_key.get(key, ())

    def load(self, key: str) -> Load:
        """What a worker of this key is told to load. Raises `KeyError` for a key that is not configured (any more)."""
        model = self._by_key[key][0]
        assert model.parameters is not None
        settings = msgspec.structs.replace(model.worker, load_key=key)
        return Load(model.id, model.parameters, settings, _vocabulary(model.facts))

    def environment(self, key: str) -> dict[str, str]:
        """Variables that a worker of this key gets beside those of every worker."""
        return dict(self._by_key[key][0].environment)

    def entries(self) -> tuple[ModelEntry, ...]:
        """The scheduler's view: one entry per load key, with what its names want combined."""
        return tuple(_combine(key, models) for key, models in self._by_key.items())

    def difference(self, older: Catalogue) -> Difference:
        """What changes when this catalogue takes the place of an older one."""
        mine, theirs = self._by_key.keys(), older._by_key.keys()
        common = self.models.keys() & older.models.keys()
        return Difference(
            added=tuple(sorted(mine - theirs)),
            gone=tuple(sorted(theirs - mine)),
            same=tuple(sorted(mine & theirs)),
            names_added=tuple(sorted(self.models.keys() - older.models.keys())),
            names_gone=tuple(sorted(older.models.keys() - self.models.keys())),
            names_changed=tuple(sorted(name for name in common if self.models[name] != older.models[name])),
        )

    def _alike(self, name: str) -> str | None:
        variant = name.removesuffix(LATEST) if name.endswith(LATEST) else name + LATEST
        found = self._names.get(variant) or self._canonical.get(canonical(name))
        if found is not None:
            return found
        return next((model for pattern, model in self._patterns if fnmatch.fnmatchcase(name, pattern)), None)


def canonical(name: str) -> str:
    """A name with the tag behind its last colon as llama.cpp writes it: `x:ud-q4_k_m` is `x:Q4_K_M`."""
    match = _TAG.match(name)
    return match["stem"] + match["tag"].upper() if match is not None else name


def _combine(key: str, models: tuple[Model, ...]) -> ModelEntry:
    """Names that share a worker: pinned if any is, the highest priority, the longest idle time (0 is for ever)."""
    traits = [model.traits for model in models]
    first = models[0]
    assert first.parameters is not None
    return ModelEntry(
        key=key,
        names=tuple(name for model in models for name in model.names),
        needs=tuple(prediction.need() for prediction in first.predictions),
        slots=first.parameters.slots,
        pin=any(item.pin for item in traits),
        priority=max(item.priority for item in traits),
        home=any(item.home for item in traits),
        default_environment=not first.environment,
        on_gpu=first.on_gpu,
        reserved_threads=max(model.reserved_threads for model in models),
        sleep_idle=_longest(item.sleep_idle for item in traits),
        unload_idle=_longest(item.unload_idle for item in traits),
        recycle_after=_smallest(item.recycle_after for item in traits),
        max_memory=_smallest(item.max_memory for item in traits),
        stop_timeout=max(item.stop_timeout for item in traits),
        queue_limit=max(item.queue_limit for item in traits),
        wait_limit=max(item.wait_limit for item in traits),
        load_on_startup=any(item.load_on_startup for item in traits),
    )


def _longest(times: Iterable[float]) -> float:
    """The longest of several times, where 0 means never."""
    found = list(times)
    return 0.0 if 0.0 in found else max(found)


def _smallest(limits: Iterable[int]) -> int:
    """The tightest of several limits, where 0 means none."""
    return min((limit for limit in limits if limit), default=0)


def _vocabulary(facts: ModelFacts | None) -> VocabularyFacts:
    """What a worker may rely on: nothing of a file that has been replaced since its header was read."""
    if facts is None or not facts.still_hold():
        return VocabularyFacts()
    return VocabularyFacts(facts.architecture, facts.n_vocab)

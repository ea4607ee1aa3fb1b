"""Decides which of several values of an option counts, and makes structs of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from protocol.load import DraftSpec, LoadParameters, WorkerSettings
from protocol.sampling import SamplingParameters
from router.config.errors import BadValue
from router.config.option import Assignment, Target
from router.config.settings import Settings
from router.config.traits import RequestDefaults, Traits

Slot = tuple[Target, str]
"""What an option writes to: two options with one slot replace one another."""

_LOAD_MODE = (Target.LOAD, "load_mode")
_LOAD_MODE_PARTS = ((Target.LOAD, "mmap"), (Target.LOAD, "mlock"))

T = TypeVar("T", bound=Struct)


class Overridden(Struct, frozen=True):
    """A value that was given and does not count, and the one that does."""

    lost: Assignment
    won: Assignment


class Effective(Struct, frozen=True):
    """What counts, per slot: one value, or all of a layer's where they add up."""

    values: dict[Slot, tuple[Assignment, ...]]
    overridden: tuple[Overridden, ...] = ()
    """Values of a layer that a higher layer replaced."""

    def first(self, target: Target, field: str) -> Assignment | None:
        found = self.values.get((target, field))
        return found[-1] if found else None

    def text(self, target: Target, field: str) -> str:
        """The parsed value of a text option, "" if it is not set. Raises `BadValue`."""
        found = self.first(target, field)
        return str(found.value) if found is not None else ""

    def words(self, target: Target, field: str) -> tuple[str, ...]:
        """The parsed words of a list option, each once. Raises `BadValue`."""
        found: list[str] = []
        for item in self.values.get((target, field), ()):
            value = item.value
            if isinstance(value, tuple):
                found.extend(str(word) for word in value)
        return tuple(dict.fromkeys(found))

    def all(self) -> tuple[Assignment, ...]:
        return tuple(item for found in self.values.values() for item in found)


def settle(*layers: Iterable[Assignment]) -> Effective:
    """Merge layers, the lowest first. A higher layer replaces a lower one's value of the same slot."""
    values: dict[Slot, tuple[Assignment, ...]] = {}
    overridden: list[Overridden] = []
    for layer in layers:
        for slot, given in _slots(layer).items():
            covered = (slot, *_LOAD_MODE_PARTS) if slot == _LOAD_MODE else (slot,)
            for lower in covered:
                overridden.extend(Overridden(lost, given[-1]) for lost in values.pop(lower, ()))
            values[slot] = given
    return Effective(values, tuple(overridden))


def _slots(layer: Iterable[Assignment]) -> dict[Slot, tuple[Assignment, ...]]:
    """The values of one layer per slot: those that add up together, of others the last."""
    found: dict[Slot, tuple[Assignment, ...]] = {}
    for item in layer:
        field = item.option.field or item.option.name
        slot = (item.option.target, field)
        before = found.get(slot, ())
        found[slot] = (*before, item) if item.option.many and before and before[-1].option.many else (item,)
    return found


def settings_from(effective: Effective) -> Settings:
    """The gateway's settings. Raises `BadValue`."""
    return _fill(Settings(), effective, Target.SERVER)


def traits_from(effective: Effective) -> Traits:
    return _fill(Traits(), effective, Target.MODEL)


def worker_from(effective: Effective) -> WorkerSettings:
    return _fill(WorkerSettings(), effective, Target.WORKER)


def request_from(effective: Effective, recommended: Mapping[str, int | float]) -> RequestDefaults:
    """Request defaults: what was configured over what the model's file recommends. Raises `BadValue`."""
    base = msgspec.convert(dict(recommended), SamplingParameters, strict=False) if recommended else SamplingParameters()
    return _fill(
        RequestDefaults(sampling=_fill(base, effective, Target.SAMPLING)),
        effective,
        Target.REQUEST,
    )


def load_parameters_from(effective: Effective, model_path: str, mmproj_path: str) -> LoadParameters:
    """The load parameters of the file at `model_path`; without a projector where that was said. Raises `BadValue`."""
    fields = _fields(effective, Target.LOAD)
    mode = fields.pop("load_mode", None)
    if mode is not None:
        assert isinstance(mode, tuple)
        fields.setdefault("mmap", mode[0])
        fields.setdefault("mlock", mode[1])
    unapplied = fields.pop("lora_unapplied", False)
    if fields.pop("mmproj_auto", True) is False:
        mmproj_path = ""
    parameters: LoadParameters = msgspec.structs.replace(
        LoadParameters(model_path, mmproj_path), draft=_draft(effective), **fields
    )
    if unapplied:
        silent = tuple(msgspec.structs.replace(item, scale=0.0) for item in parameters.adapters)
        parameters = msgspec.structs.replace(parameters, adapters=silent)
    if parameters.pooling == "rank":
        parameters = msgspec.structs.replace(parameters, embeddings=True)
    if parameters.ubatch_size > parameters.batch_size:
        parameters = msgspec.structs.replace(parameters, ubatch_size=parameters.batch_size)
    return parameters


def _draft(effective: Effective) -> DraftSpec:
    draft = _fill(DraftSpec(), effective, Target.DRAFT)
    kind_given = (Target.DRAFT, "kind") in effective.values
    if draft.model_path and not kind_given:
        draft = msgspec.structs.replace(draft, kind="model")
    if draft.kind == "model" and not draft.model_path:
        raise BadValue("speculative decoding with a draft model needs --model-draft")
    if draft.kind != "model":
        draft = msgspec.structs.replace(draft, model_path="")
    if draft.n_min > draft.n_max:
        raise BadValue(f"at least {draft.n_min} and at most {draft.n_max} draft tokens cannot be")
    return draft


def _fill(base: T, effective: Effective, target: Target) -> T:
    filled: T = msgspec.structs.replace(base, **_fields(effective, target))
    return filled


def _fields(effective: Effective, target: Target) -> dict[str, object]:
    """The values of one target by field. Raises `BadValue` that names the option and its origin."""
    fields: dict[str, object] = {}
    for (its_target, field), given in effective.values.items():
        if its_target is not target:
            continue
        values = [parse(item) for item in given]
        if given[-1].option.many:
            fields[field] = tuple(part for value in values if isinstance(value, tuple) for part in value)
        else:
            fields[field] = values[-1]
    return fields


def parse(item: Assignment) -> object:
    """The value of one assignment. Raises `BadValue` that names the option and where it was set."""
    try:
        return item.value
    except BadValue as error:
        raise BadValue(f"{item.option.name} ({item.origin}): {error}") from None

"""Actions on the slots and adapters of a worker."""

from __future__ import annotations

from msgspec import Struct

from protocol.generate import LoraScale


class SlotAction(Struct, frozen=True, tag="slot_action", omit_defaults=True):
    """`action` is `save`, `restore` or `erase`; `filename` is a bare name inside the slot folder."""

    request: int
    slot: int
    action: str
    filename: str = ""


class SlotActionDone(Struct, frozen=True, tag="slot_action_done", omit_defaults=True):
    """Tokens and bytes saved, restored or erased, and how long it took in milliseconds."""

    request: int
    n_tokens: int
    n_bytes: int = 0
    ms: float = 0.0


class ListAdapters(Struct, frozen=True, tag="list_adapters", omit_defaults=True):
    request: int


class SetAdapters(Struct, frozen=True, tag="set_adapters", omit_defaults=True):
    """Default scales from now on; adapters that are not named go to 0."""

    request: int
    scales: tuple[LoraScale, ...]


class AdapterInfo(Struct, frozen=True, omit_defaults=True):
    id: int
    path: str
    scale: float
    task_name: str = ""
    prompt_prefix: str = ""


class Adapters(Struct, frozen=True, tag="adapters", omit_defaults=True):
    """The answer to both requests above."""

    request: int
    adapters: tuple[AdapterInfo, ...]

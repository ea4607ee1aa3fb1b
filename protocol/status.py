"""The status of a child: a level, never an edge."""

from __future__ import annotations

import enum

from msgspec import Struct


class WorkerState(enum.StrEnum):
    EMPTY = "empty"
    """Started, connected, no model: a warm spare."""
    LOADING = "loading"
    READY = "ready"
    SLEEPING = "sleeping"
    """Context and weights are freed; the process and the vocabulary stay."""
    WAKING = "waking"
    STOPPING = "stopping"


class SlotStatus(Struct, frozen=True, array_like=True):
    """One slot. Counts are tokens.

    `state` is `idle`, `prefill`, `decode` or `parked`; `request` is 0 for an idle slot.
    """

    id: int
    state: str
    request: int = 0
    n_prompt: int = 0
    n_prompt_cached: int = 0
    n_prompt_done: int = 0
    n_decoded: int = 0
    n_limit: int = -1


class DeviceMemory(Struct, frozen=True, array_like=True):
    """Bytes that this process holds on one device (`host` for main memory)."""

    device: str
    weights: int
    context: int
    compute: int


class MemoryUse(Struct, frozen=True, omit_defaults=True):
    """Memory of the child in bytes. `anonymous` excludes mapped files; `resident` includes them."""

    resident: int = 0
    anonymous: int = 0
    devices: tuple[DeviceMemory, ...] = ()


class Counters(Struct, frozen=True, omit_defaults=True):
    """Totals since the process started; they never fall. Times in seconds."""

    prompt_tokens: int = 0
    prompt_tokens_cached: int = 0
    prompt_seconds: float = 0.0
    predicted_tokens: int = 0
    predicted_seconds: float = 0.0
    decode_steps: int = 0
    busy_slots: int = 0
    """Sum over steps of the slots that took part: divided by `decode_steps` it is the mean batch."""
    tokens_max: int = 0
    draft_tokens: int = 0
    draft_accepted: int = 0
    drafts: int = 0
    parked: int = 0
    cancelled: int = 0


class UpdateStatus(Struct, frozen=True, tag="update_status", omit_defaults=True):
    """A complete snapshot of the child; the receiver keeps the highest `revision` per child and epoch.

    `answers` is the nonce of the `QueryStatus` that asked for it, 0 if nothing did. `progress` is 0..1 within
    `stage` while loading or waking. `step` counts decode steps and `preparation` counts steps of the preparation
    thread: both stand still only when there is no work or the thread is stuck. `held` lists every request that
    the child knows, queued ones too. `kv_used` and `kv_total` are cells.
    """

    revision: int
    state: WorkerState
    answers: int = 0
    progress: float = 0.0
    stage: str = ""
    step: int = 0
    preparation: int = 0
    slots: tuple[SlotStatus, ...] = ()
    held: tuple[int, ...] = ()
    kv_used: int = 0
    kv_total: int = 0
    threads: int = 0
    memory: MemoryUse = MemoryUse()
    counters: Counters = Counters()
    reason: str = ""

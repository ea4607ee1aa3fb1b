"""The states of a model. Everything that affects transitions is in this file, and all of it is in the table."""

from __future__ import annotations

import enum


class State(enum.StrEnum):
    UNLOADED = "unloaded"
    SPAWNING = "spawning"
    """A worker is promised and its memory reserved, but it was not told to load yet."""
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    """No new leases; what runs may end or is parked."""
    STOPPING = "stopping"
    FALLING_ASLEEP = "falling_asleep"
    """`Sleep` was sent and not answered: the memory stays reserved, new requests wait."""
    SLEEPING = "sleeping"
    WAKING = "waking"
    BACKOFF = "backoff"
    """Its worker died; the next one starts after a pause."""
    FAILED = "failed"
    """It could not be loaded, or died too often; refused until the cooldown is over."""
    STUCK = "stuck"
    """Its worker cannot be killed: the memory stays charged, and nobody waits for it."""


class Trigger(enum.StrEnum):
    LOAD = "load"
    CONNECTED = "connected"
    LOADED = "loaded"
    DRAIN = "drain"
    RESUME = "resume"
    STOP = "stop"
    SLEEP = "sleep"
    ASLEEP = "asleep"
    DECLINED = "declined"
    WAKE = "wake"
    EXITED = "exited"
    CRASHED = "crashed"
    FAILED = "failed"
    COOLED = "cooled"
    STUCK = "stuck"


TRANSITIONS: dict[State, dict[Trigger, State]] = {
    State.UNLOADED: {
        Trigger.LOAD: State.SPAWNING,
        Trigger.FAILED: State.FAILED,
    },
    State.SPAWNING: {
        Trigger.CONNECTED: State.LOADING,
        Trigger.STOP: State.STOPPING,
        Trigger.CRASHED: State.BACKOFF,
        Trigger.FAILED: State.FAILED,
    },
    State.LOADING: {
        Trigger.LOADED: State.READY,
        Trigger.STOP: State.STOPPING,
        Trigger.CRASHED: State.BACKOFF,
        Trigger.FAILED: State.FAILED,
    },
    State.READY: {
        Trigger.DRAIN: State.DRAINING,
        Trigger.STOP: State.STOPPING,
        Trigger.SLEEP: State.FALLING_ASLEEP,
        Trigger.ASLEEP: State.SLEEPING,
        Trigger.WAKE: State.WAKING,
        Trigger.CRASHED: State.BACKOFF,
        Trigger.FAILED: State.FAILED,
    },
    State.DRAINING: {
        Trigger.RESUME: State.READY,
        Trigger.STOP: State.STOPPING,
        Trigger.CRASHED: State.BACKOFF,
        Trigger.FAILED: State.FAILED,
    },
    State.STOPPING: {
        Trigger.EXITED: State.UNLOADED,
        Trigger.CRASHED: State.BACKOFF,
        Trigger.FAILED: State.FAILED,
        Trigger.STUCK: State.STUCK,
    },
    State.FALLING_ASLEEP: {
        Trigger.ASLEEP: State.SLEEPING,
        Trigger.DECLINED: State.READY,
        Trigger.STOP: State.STOPPING,
        Trigger.CRASHED: State.BACKOFF,
        Trigger.FAILED: State.FAILED,
    },
    State.SLEEPING: {
        Trigger.WAKE: State.WAKING,
        Trigger.STOP: State.STOPPING,
        Trigger.CRASHED: State.BACKOFF,
        Trigger.FAILED: State.FAILED,
    },
    State.WAKING: {
        Trigger.LOADED: State.READY,
        Trigger.STOP: State.STOPPING,
        Trigger.CRASHED: State.BACKOFF,
        Trigger.FAILED: State.FAILED,
    },
    State.BACKOFF: {
        Trigger.LOAD: State.SPAWNING,
        Trigger.COOLED: State.UNLOADED,
        Trigger.FAILED: State.FAILED,
    },
    State.FAILED: {
        Trigger.LOAD: State.SPAWNING,
        Trigger.COOLED: State.UNLOADED,
    },
    State.STUCK: {
        Trigger.LOAD: State.SPAWNING,
        Trigger.EXITED: State.UNLOADED,
    },
}

PROMISED = frozenset({State.SPAWNING, State.LOADING, State.WAKING})
"""On the way to `ready`."""

WITHOUT_WORKER = frozenset({State.UNLOADED, State.BACKOFF, State.FAILED, State.STUCK})
"""A new worker may be started. The one of a `stuck` model is no longer its worker."""

PUBLIC: dict[State, str] = {
    State.UNLOADED: "unloaded",
    State.SPAWNING: "loading",
    State.LOADING: "loading",
    State.READY: "loaded",
    State.DRAINING: "loaded",
    State.STOPPING: "unloaded",
    State.FALLING_ASLEEP: "loaded",
    State.SLEEPING: "sleeping",
    State.WAKING: "loading",
    State.BACKOFF: "unloaded",
    State.FAILED: "unloaded",
    State.STUCK: "unloaded",
}
"""llama-server's words, which its clients expect."""


class IllegalTransition(Exception):
    """A bug of ours: the table has no such transition. Nothing was changed. `story` is the model's recent past."""

    def __init__(self, model: str, state: State, trigger: Trigger, story: tuple[str, ...]) -> None:
        lines = "".join(f"\n  {line}" for line in story)
        super().__init__(f"{model}: {trigger} is illegal in {state}; before that:{lines}")
        self.model = model
        self.state = state
        self.trigger = trigger
        self.story = story


def follow(state: State, trigger: Trigger) -> State | None:
    """The state after `trigger`, None where the table has none."""
    return TRANSITIONS[state].get(trigger)


def mermaid() -> str:
    """The table as a Mermaid state diagram; transitions between the same two states share one arrow."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for state, row in TRANSITIONS.items():
        for trigger, target in row.items():
            arrows.setdefault((state, target), []).append(trigger)
    lines = ["stateDiagram-v2", "    [*] --> unloaded"]
    lines += [f"    {source} --> {target}: {', '.join(names)}" for (source, target), names in arrows.items()]
    return "\n".join(lines) + "\n"

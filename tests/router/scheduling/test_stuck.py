"""Processes that cannot be killed."""

from __future__ import annotations

from router.scheduling import events
from router.scheduling.events import Child
from router.scheduling.states import State
from tests.router.scheduling.rig import Rig, entry, host


def stuck(rig: Rig, key: str) -> Child:
    child = rig.child(key)
    rig.post(events.UnloadAsked(key, force=True))
    rig.post(events.ChildStuck(child))
    return child


def test_its_memory_stays_charged_and_what_cannot_fit_beside_it_is_refused_with_the_numbers() -> None:
    rig = Rig(entry("a", needs=host(60)), entry("b", needs=host(60)), budget=(("host", 100),))
    rig.ask("a")
    rig.post(events.MemoryRead((("host", 1000),)))
    rig.up("a")
    child = stuck(rig, "a")
    assert rig.state("a") is State.STUCK
    refused = rig.ask("b")
    assert rig.ended() == {refused: "load_failed"}
    assert "60 B needed on host, the budget is 100 B, of which 60 B cannot be freed" in rig.error(refused)
    rig.exit(child, -9)
    assert rig.state("a") is State.UNLOADED
    rig.ask("b")
    assert rig.state("b") is State.SPAWNING


def test_its_end_leaves_a_model_alone_that_was_configured_anew() -> None:
    rig = Rig(entry("a"), entry("b"))
    rig.serve("a")
    child = stuck(rig, "a")
    rig.post(events.ModelsChanged((entry("b"),), rig.policy))
    rig.post(events.ModelsChanged((entry("a"), entry("b")), rig.policy))
    rig.serve("a")
    rig.exit(child, -9)
    assert rig.state("a") is State.READY

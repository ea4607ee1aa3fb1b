"""The table is total, every state can be left and reached, and what it does not have raises and changes nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from router.scheduling import states
from router.scheduling.ledger import Ledger
from router.scheduling.model import ModelEntry, Policy
from router.scheduling.records import Model
from router.scheduling.states import TRANSITIONS, IllegalTransition, State, Trigger

README = Path(states.__file__).parents[1] / "README.md"

ILLEGAL = [(state, trigger) for state in State for trigger in Trigger if trigger not in TRANSITIONS[state]]


def test_every_state_has_a_row_and_every_trigger_a_use() -> None:
    assert set(TRANSITIONS) == set(State) == set(states.PUBLIC)
    assert {trigger for row in TRANSITIONS.values() for trigger in row} == set(Trigger)


def test_every_state_is_reached_from_unloaded_and_leads_back_to_it() -> None:
    def reachable(start: State) -> set[State]:
        seen, open_states = {start}, [start]
        while open_states:
            for target in TRANSITIONS[open_states.pop()].values():
                if target not in seen:
                    seen.add(target)
                    open_states.append(target)
        return seen

    assert reachable(State.UNLOADED) == set(State)
    assert all(State.UNLOADED in reachable(state) for state in State)


def test_every_state_with_a_worker_survives_its_death() -> None:
    for state in set(State) - states.WITHOUT_WORKER:
        assert Trigger.CRASHED in TRANSITIONS[state], state
        assert state is State.STOPPING or Trigger.STOP in TRANSITIONS[state], state


@pytest.mark.parametrize(("state", "trigger"), ILLEGAL)
def test_an_illegal_transition_raises_with_the_story_and_changes_nothing(state: State, trigger: Trigger) -> None:
    ledger = Ledger(Policy(), random.Random(0))
    model = Model(ModelEntry("m", ("m",)), "m", since=0.0)
    ledger.now = 5.0
    ledger.move(model, Trigger.LOAD, "asked for")
    model.state, ledger.effects = state, []
    before = (model.state, model.since, model.reason, list(model.story))
    with pytest.raises(IllegalTransition) as raised:
        ledger.move(model, trigger, "a bug")
    assert (model.state, model.since, model.reason, list(model.story)) == before
    assert ledger.effects == []
    assert raised.value.story == ("5.000 unloaded -load-> spawning: asked for",)
    assert "asked for" in str(raised.value)


def test_the_diagram_in_the_readme_is_made_from_the_table() -> None:
    text = README.read_text(encoding="utf-8")
    begin = text.index("```mermaid\n") + len("```mermaid\n")
    shown = text[begin : text.index("```", begin)]
    assert shown == states.mermaid(), f"put this into {README}:\n{states.mermaid()}"

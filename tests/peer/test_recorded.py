"""The gateway beside llama-server's recorded answers: same tokens, log-probabilities, vectors and scores."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.peer.comparison import differences
from tests.peer.record import recorded
from tests.peer.servers import Server
from tests.peer.suites import SAMPLING, SUITES, greedy

pytestmark = pytest.mark.model


@pytest.mark.parametrize("name", list(SUITES))
def test_answers_are_llama_servers(server: Server, name: str) -> None:
    theirs = recorded(name)
    assert theirs.keys() == SUITES[name].asks.keys(), "record anew: the requests have changed"
    found = {ask: differences(theirs[ask], get(server.of(name))) for ask, get in SUITES[name].asks.items()}
    assert not {ask: lines for ask, lines in found.items() if lines}


@pytest.mark.parametrize("cache", [False, True], ids=["each for itself", "with a shared prefix"])
@pytest.mark.parametrize("clients", [1, 4], ids=["alone", "in a full batch"])
def test_greedy_answers_depend_on_nothing_else(server: Server, cache: bool, clients: int) -> None:
    theirs = recorded("greedy")
    with ThreadPoolExecutor(clients) as pool:
        ours = list(pool.map(lambda prompt: greedy(prompt, cache=cache)(server.of("greedy")), theirs))
    assert len(theirs) == 20
    found = [line for answers in zip(theirs.values(), ours, strict=True) for line in differences(*answers)]
    assert not found


def test_each_sampling_parameter_shows_an_effect() -> None:
    """A request that answers as the plain one does would prove nothing about its parameter."""
    answers = recorded("sampling")
    plain = {number: answers[f"plain {number}"]["tokens"] for number in "01"}
    alike = {name for name in SAMPLING if all(answers[f"{name} {n}"]["tokens"] == plain[n] for n in "01")}
    assert alike == {"plain", "samplers_none"}  # the latter turns all of them off


@pytest.mark.parametrize("name", ["tokens", "logprobs", "vector", "scores"])
def test_a_difference_is_found(name: str) -> None:
    samples: dict[str, dict[str, Any]] = {
        "tokens": {"tokens": [1, 2], "content": "a", "stop_type": "eos"},
        "logprobs": {"tokens": [1], "logprobs": [{"1": -0.5, "2": -1.5}]},
        "vector": {"vector": [1.0, 0.0, 0.5]},
        "scores": {"scores": [[0, 0.9], [1, 0.2]]},
    }
    theirs = samples[name]
    assert not differences(theirs, copy.deepcopy(theirs))
    changed: dict[str, dict[str, Any]] = {
        "tokens": {"tokens": [1, 3]},
        "logprobs": {"logprobs": [{"1": -0.5, "2": -1.502}]},
        "vector": {"vector": [1.0, 0.1, 0.5]},
        "scores": {"scores": [[1, 0.9], [0, 0.2]]},
    }
    assert differences(theirs, {**theirs, **changed[name]})

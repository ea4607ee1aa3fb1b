"""Real models on both servers, one after the other: the same greedy text, the same log-probabilities.

Needs LLAMA_SERVER, the path of a llama-server program. PEER_MODELS names more model files than the packaged one,
separated as in PATH.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.process import packaged_model
from tests.peer.comparison import differences
from tests.peer.servers import OURS, Server, llama_server, serving
from tests.peer.suites import logprobs

pytestmark = [pytest.mark.model, pytest.mark.slow, pytest.mark.timeout(600)]

OPTIONS = {"ctx-size": "4096", "parallel": "4", "threads": "2", "flash-attn": "off"}
SYSTEM = "You are a patient teacher who answers every question in one short sentence and never asks anything back. " * 4
QUESTIONS = (
    "The capital of France is",
    "Once upon a time there was a little girl who",
    "def fibonacci(n):\n    ",
    "1, 2, 3, 4, 5, 6, 7,",
    "Der Hund läuft durch den",
    "The three primary colours are",
    "Water boils at a temperature of",
    "import numpy as np\n\ndef mean(values):\n",
    "The opposite of hot is",
    "Monday, Tuesday, Wednesday,",
    "She opened the door and saw",
    "The largest planet of the solar system is",
    "SELECT name FROM users WHERE",
    "To make tea, first",
    "<html>\n<head>\n<title>",
    "The quick brown fox",
    "Dear Sir or Madam,\n\n",
    "In the year 1969,",
    "A: What is two plus two?\nB:",
    "The sea is",
)
N_PREDICT = 24
FLOAT_NOISE = 0.6
"""How far two likeliest tokens may be apart for either to be the answer, where a batch or a cache changes how sums are
rounded: quantized activations turn a last bit into as much. llama-server's own log-probabilities move by 0.18 between
two values of --ubatch-size, by 0.41 between its two kinds of attention, and by 0.49 between a prompt alone and four at
once in its unified cache, where 4 of 12 answers part. `test_recorded.py` shows on a model without quantization that
nothing else differs."""


def models() -> list[Path]:
    more = [Path(path) for path in os.environ.get("PEER_MODELS", "").split(os.pathsep) if path]
    return [packaged_model(), *more]


def _greedy(prompt: str, **fields: Any) -> dict[str, Any]:
    body = {"prompt": prompt, "n_predict": N_PREDICT, "temperature": 0.0, "n_probs": 10, "cache_prompt": False}
    return {**body, "return_tokens": True, **fields}


def _ask(server: Server, prompt: str, **fields: Any) -> Any:
    return logprobs(server.post("/completion", _greedy(prompt, **fields)))


def _parting(theirs: Any, ours: Any) -> str:
    """Where two greedy answers part with a difference that rounding does not explain; empty if nowhere."""
    pairs = zip(theirs["tokens"], ours["tokens"], strict=False)
    step = next((step for step, (there, here) in enumerate(pairs) if there != here), -1)
    if step < 0:
        return ""
    there, here = theirs["logprobs"][step], ours["logprobs"][step]
    a, b = str(theirs["tokens"][step]), str(ours["tokens"][step])
    margin = max(there[a] - there.get(b, -99.0), here[b] - here.get(a, -99.0))
    return f"step {step}: {a} there, {b} here, {margin:.4f} apart" if margin > FLOAT_NOISE else ""


@pytest.fixture(scope="module", params=models(), ids=lambda path: str(path.stem))
def theirs(request: pytest.FixtureRequest) -> tuple[Path, dict[str, Any]]:
    """llama-server's answers to each question, one after the other, with and without the system prompt before it."""
    if not llama_server():
        pytest.skip("LLAMA_SERVER is not set")
    with serving((llama_server(),), request.param, OPTIONS) as server:
        alone = {question: _ask(server, question) for question in QUESTIONS}
        prefixed = {SYSTEM + question: _ask(server, SYSTEM + question) for question in QUESTIONS}
    return request.param, {**alone, **prefixed}


def test_alone_answers_are_the_same(theirs: tuple[Path, dict[str, Any]]) -> None:
    model, answers = theirs
    with serving(OURS, model, OPTIONS) as server:
        ours = {prompt: _ask(server, prompt) for prompt in answers}
    found = [_parting(answers[prompt], ours[prompt]) for prompt in answers]
    if model == packaged_model():
        # Where a window slides, llama-server cuts prompts before their end, and its cache lies differently.
        found += [line for prompt in answers for line in differences(answers[prompt], ours[prompt])]
    assert not any(found), [line for line in found if line]


@pytest.mark.parametrize(
    ("options", "fields", "clients"),
    [
        pytest.param({}, {"cache_prompt": True}, 1, id="with a shared prefix"),
        pytest.param({"ubatch-size": "16", "step-budget-ms": "10"}, {}, 1, id="in chunks"),
        pytest.param({}, {}, 4, id="in a full batch"),
        pytest.param({"step-budget-ms": "10"}, {"cache_prompt": True}, 4, id="all at once"),
    ],
)
def test_answers_differ_by_rounding_alone(
    theirs: tuple[Path, dict[str, Any]], options: dict[str, str], fields: dict[str, Any], clients: int
) -> None:
    model, answers = theirs
    with serving(OURS, model, {**OPTIONS, **options}) as server, ThreadPoolExecutor(clients) as pool:
        ours = dict(zip(answers, pool.map(lambda prompt: _ask(server, prompt, **fields), answers), strict=True))
    found = {prompt[-30:]: _parting(answers[prompt], ours[prompt]) for prompt in answers}
    assert not {prompt: line for prompt, line in found.items() if line}

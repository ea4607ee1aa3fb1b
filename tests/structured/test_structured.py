"""Structured output through the gateway: a few of each family by default, a thousand when there is time."""

from __future__ import annotations

import json
import time

import httpx
import llama_cpp
import numpy as np
import pytest
from llama_cpp.llama_grammar import json_schema_to_gbnf

from protocol.load import LoadParameters
from tests.gateway.process import Gateway, packaged_model
from tests.structured import campaign
from tests.structured.conftest import MODEL
from tests.structured.schemas import FAMILIES, Schema, draw
from worker.constraint import ConstraintCompiler, ban
from worker.llama_candidates import Candidates
from worker.llama_log import EngineLog
from worker.llama_model import Contents, Model
from worker.model_texts import ModelTexts
from worker.prompt.template import ChatTemplate

pytestmark = pytest.mark.model

QUICK = [name for name in FAMILIES if name != "recursion"]
"""A small model does not always find an end to trees."""


def test_some_answers_of_most_families_satisfy_their_schemas(gateway: Gateway) -> None:
    tally = campaign.schemas(gateway.url, MODEL, range(1), QUICK)
    assert not tally.wrong
    assert tally.asked == len(QUICK)
    assert tally.ends["stop"] >= 0.9 * tally.asked


def test_some_required_and_named_calls_are_valid(gateway: Gateway) -> None:
    tally = campaign.calls(gateway.url, MODEL, range(8))
    assert not tally.wrong
    assert tally.asked == 8


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_thousand_answers_satisfy_their_schemas(gateway: Gateway) -> None:
    seeds = range(1, 2 + 1000 // len(FAMILIES))
    tally = campaign.schemas(gateway.url, MODEL, seeds)
    assert not tally.wrong
    assert tally.asked >= 1000
    assert tally.ends["stop"] >= 0.95 * tally.asked


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_three_hundred_required_and_named_calls_are_valid(gateway: Gateway) -> None:
    tally = campaign.calls(gateway.url, MODEL, range(100, 400))
    assert not tally.wrong
    assert tally.asked == 300


@pytest.mark.parametrize("stream", [False, True])
def test_json_and_calls_that_the_limit_cuts_say_so_and_keep_what_there_is(gateway: Gateway, stream: bool) -> None:
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        body = {**campaign.schema_body("flat", 3), "model": MODEL, "max_tokens": 6}
        message, finish = campaign.chat(client, body, stream=stream)
        assert finish == "length"
        assert message["content"].startswith("{")
        named = campaign.tool("nested", 3)
        choice = {"type": "function", "function": {"name": named["function"]["name"]}}
        call = {**campaign.call_body(3), "tools": [named], "tool_choice": choice, "model": MODEL, "max_tokens": 24}
        message, finish = campaign.chat(client, call, stream=stream)
        assert finish == "length"
        (cut,) = message["tool_calls"]
        assert cut["function"]["name"] == named["function"]["name"]
        assert cut["function"]["arguments"].startswith("{")


@pytest.mark.parametrize("arguments", ["{", '{"a": }', "city=Rome"])
def test_arguments_in_the_history_that_cannot_be_read_are_refused(gateway: Gateway, arguments: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
    ]
    answer = httpx.post(
        f"{gateway.url}/v1/chat/completions", json={"model": MODEL, "messages": messages, "max_tokens": 4}, timeout=60
    )
    assert answer.status_code == 400, answer.text
    assert "arguments" in answer.json()["error"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["flat", "nested", "patterns", "arrays_of_objects"])
def test_a_mask_costs_at_most_a_quarter_of_a_grammar(family: str) -> None:
    """Processor time per token of an answer: a mask over the vocabulary, beside GBNF over the same candidates."""
    model = Model(LoadParameters(model_path=str(packaged_model())), EngineLog(), contents=Contents.VOCABULARY)
    vocabulary = model.vocabulary
    texts = ModelTexts(vocabulary, ChatTemplate("{{ messages }}", "", ""), 4096, "", 512)
    schema, _ = draw(family, 1)
    matcher = ConstraintCompiler(texts.token_table(frozenset())).json_schema(json.dumps(schema).encode())
    grammar = llama_cpp.llama_sampler_init_grammar(
        vocabulary.handle, json_schema_to_gbnf(json.dumps(schema)).encode(), b"root"
    )
    logits = np.zeros(vocabulary.n_tokens, np.float32)
    candidates = Candidates(vocabulary.n_tokens)
    masked = grammared = 0.0
    try:
        for token in vocabulary.tokenize(json.dumps(_example(schema)), False, False):
            logits[:] = 0
            started = time.process_time()
            mask = matcher.mask()
            assert mask is not None
            ban(logits, mask)
            matcher.accept(token)
            masked += time.process_time() - started
            assert logits[token] == 0
            candidates.fill(logits)
            started = time.process_time()
            candidates.apply(grammar)
            llama_cpp.llama_sampler_accept(grammar, token)
            grammared += time.process_time() - started
    finally:
        llama_cpp.llama_sampler_free(grammar)
        model.close()
    assert masked <= 0.25 * grammared, f"{masked / grammared:.3f}"


def _example(schema: Schema) -> object:
    """A value of one of the plainer schemas."""
    if schema["type"] == "object":
        return {name: _example(member) for name, member in schema["properties"].items()}
    if schema["type"] == "array":
        return [_example(schema["items"])] * schema["minItems"]
    if "pattern" in schema:
        return "AB-" + "1234567"[: int(schema["pattern"][-3])] if "A-Z" in schema["pattern"] else "abcdef"
    return "some text" if schema["type"] == "string" else 7

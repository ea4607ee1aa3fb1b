"""Many structured requests at once, and what became of each."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx
import jsonschema

from tests.structured.schemas import FAMILIES, draw

Body = dict[str, Any]
MAX_TOKENS = 512
CLIENTS = 8


@dataclass
class Tally:
    """Ends by reason, and whatever was wrong, with the request's name."""

    ends: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def asked(self) -> int:
        return sum(self.ends.values())

    def add(self, name: str, end: str, fault: str) -> None:
        with self.lock:
            self.ends[end] += 1
            if fault:
                self.wrong.append(f"{name}: {fault}")


def chat(client: httpx.Client, body: Body, *, stream: bool) -> tuple[Body, str]:
    """The assistant's message, put together again if it was streamed, and why it ended."""
    if not stream:
        answer = client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        choice = answer.json()["choices"][0]
        return choice["message"], choice["finish_reason"]
    message: Body = {"content": "", "tool_calls": []}
    finish = ""
    with client.stream("POST", "/v1/chat/completions", json={**body, "stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            assert "error" not in event, event
            for choice in event["choices"]:
                _join(message, choice["delta"])
                finish = choice["finish_reason"] or finish
    return message, finish


def _join(message: Body, delta: Body) -> None:
    message["content"] += delta.get("content") or ""
    for part in delta.get("tool_calls") or ():
        if part["index"] == len(message["tool_calls"]):
            message["tool_calls"].append(part)
        else:
            assert not part["function"].get("name"), "a name comes once"
            message["tool_calls"][part["index"]]["function"]["arguments"] += part["function"]["arguments"]


def schema_body(family: str, seed: int) -> Body:
    schema, question = draw(family, seed)
    return {
        "messages": [{"role": "user", "content": question}],
        "max_tokens": MAX_TOKENS,
        "temperature": 0.8,
        "seed": seed,
        "response_format": {"type": "json_schema", "json_schema": {"name": family, "schema": schema}},
    }


def _schema_fault(body: Body, message: Body, finish: str) -> str:
    if finish == "length":
        return ""
    if finish != "stop":
        return f"ended by {finish}"
    schema = body["response_format"]["json_schema"]["schema"]
    try:
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        jsonschema.validate(json.loads(message["content"]), schema, format_checker=checker)
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{message['content']!r}: {str(error).splitlines()[0]}"
    return ""


def _call_fault(body: Body, message: Body, finish: str) -> str:
    if finish == "length":
        return ""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in body["tools"]}
    if not message["tool_calls"]:
        return f"no call: {message['content']!r}"
    if finish != "tool_calls":
        return f"ended by {finish}"
    try:
        for call in message["tool_calls"]:
            jsonschema.validate(json.loads(call["function"]["arguments"]), schemas[call["function"]["name"]])
    except (ValueError, KeyError, jsonschema.ValidationError) as error:
        return f"{message['tool_calls']!r}: {str(error).splitlines()[0]}"
    return ""


def tool(family: str, seed: int) -> Body:
    """A tool whose arguments are an object of a family."""
    schema, _ = draw(family, seed)
    return {"type": "function", "function": {"name": f"use_{family}", "description": "", "parameters": schema}}


OBJECTS = [name for name in FAMILIES if name not in ("top_level_array", "recursion", "all_of", "maps")]
"""Families of which every schema lists the members of an object, as parameters of tools do."""


def call_body(number: int) -> Body:
    """Two tools; every other request names the one that must be called."""
    families = [OBJECTS[number % len(OBJECTS)], OBJECTS[(number * 7 + 3) % len(OBJECTS)]]
    tools = [tool(family, number) for family in dict.fromkeys(families)]
    named = {"type": "function", "function": {"name": tools[0]["function"]["name"]}}
    return {
        "messages": [{"role": "user", "content": "Please use a tool, with short arguments."}],
        "max_tokens": MAX_TOKENS,
        "temperature": 0.8,
        "seed": number,
        "tools": tools,
        "tool_choice": named if number % 2 else "required",
    }


def run(url: str, model: str, bodies: Iterable[tuple[str, Body]], fault: Callable[[Body, Body, str], str]) -> Tally:
    """Ask everything, every other request streamed."""
    tally = Tally()

    def ask(numbered: tuple[int, tuple[str, Body]]) -> None:
        number, (name, body) = numbered
        stream = number % 2 == 1
        message, finish = chat(client, {**body, "model": model}, stream=stream)
        tally.add(f"{name}{' streamed' if stream else ''}", finish, fault(body, message, finish))

    with httpx.Client(base_url=url, timeout=300) as client, ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(ask, enumerate(bodies)))
    return tally


def schemas(url: str, model: str, seeds: range, families: Iterable[str] = tuple(FAMILIES)) -> Tally:
    bodies = [(f"{family} {seed}", schema_body(family, seed)) for seed in seeds for family in families]
    return run(url, model, bodies, _schema_fault)


def calls(url: str, model: str, numbers: range) -> Tally:
    return run(url, model, [(f"call {number}", call_body(number)) for number in numbers], _call_fault)

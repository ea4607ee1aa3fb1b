"""Gathers the deltas of one answer, for bodies that are sent whole and for events that repeat the whole."""

from __future__ import annotations

from msgspec import Struct

from protocol.generate import Delta, TokenLogprob, ToolCallDelta
from router.http.sse import random_id


class CollectedCall(Struct):
    """One tool call; `arguments` are the fragments of its JSON text."""

    id: str
    name: str
    arguments: list[str]

    @property
    def arguments_json(self) -> str:
        return "".join(self.arguments) or "{}"


class Choice:
    """What one choice has brought so far."""

    __slots__ = ("calls", "logprobs", "n_tokens", "reasoning_parts", "text_parts", "tokens")

    def __init__(self) -> None:
        self.text_parts: list[str] = []
        self.reasoning_parts: list[str] = []
        self.calls: dict[int, CollectedCall] = {}
        self.logprobs: list[TokenLogprob] = []
        self.tokens: list[int] = []
        self.n_tokens = 0

    def add(self, delta: Delta) -> None:
        self.n_tokens += delta.n_tokens
        if delta.text:
            self.text_parts.append(delta.text)
        extra = delta.extra
        if extra is None:
            return
        if extra.reasoning:
            self.reasoning_parts.append(extra.reasoning)
        for call in extra.tool_calls:
            self.add_call(call)
        self.logprobs.extend(extra.logprobs)
        self.tokens.extend(extra.tokens)

    def add_call(self, fragment: ToolCallDelta) -> tuple[CollectedCall, bool]:
        """Join a fragment to its call; True with the first one of a call."""
        call = self.calls.get(fragment.index)
        first = call is None
        if call is None:
            call = CollectedCall(id=fragment.id or random_id("call_"), name=fragment.name, arguments=[])
            self.calls[fragment.index] = call
        if fragment.arguments:
            call.arguments.append(fragment.arguments)
        return call, first

    @property
    def text(self) -> str:
        return "".join(self.text_parts)

    @property
    def reasoning(self) -> str:
        return "".join(self.reasoning_parts)


class Collector:
    """The choices of one answer by index."""

    def __init__(self, n: int = 1) -> None:
        self.choices = [Choice() for _ in range(n)]

    def add(self, delta: Delta) -> None:
        self.choices[delta.index].add(delta)

"""Optional calls: free text stays free, and what has been opened becomes a valid call."""

from __future__ import annotations

import pytest

from tests.worker.chat.answers import tool
from tests.worker.chat.test_forcing import COMPILER, PREFIXES, TOOLS, endings
from tests.worker.constraint.byte_vocabulary import END, accepts, allowed, draw
from worker.call_gate import CallGate, Openings
from worker.chat.call_shapes import SHAPES
from worker.chat.forcing import forced_calls, optional_calls
from worker.chat.formats import FORMATS
from worker.chat.syntax import OutputSyntax, ReasoningTags
from worker.output_constraint import output_constraint

TAGS = {entry.name: entry.reasoning for entry in FORMATS}
THINK = ReasoningTags("<think>", ("</think>",))
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome", "days": 3}}\n</tool_call>'
WRONG = '<tool_call>\n{"name": "get_weather", "arguments": {"city": 7'


def gate(name: str = "hermes", **options: object) -> CallGate:
    make = output_constraint(COMPILER, None, OutputSyntax(name, tools=TOOLS, **options), "auto")  # type: ignore[arg-type]
    assert make is not None
    made = make()
    assert isinstance(made, CallGate)
    return made


def is_bound(made: CallGate) -> bool:
    return made.mask() is not None


def feed(made: CallGate, text: str) -> CallGate:
    for byte in text.encode():
        assert byte in allowed(made), f"{chr(byte)!r} is not allowed"
        made.accept(byte)
    return made


@pytest.mark.parametrize("name", list(SHAPES))
@pytest.mark.parametrize("thinks", [False, True])
def test_a_call_of_each_format_is_recognised_and_followed_to_its_end(name: str, thinks: bool) -> None:
    tags = TAGS[name] if thinks else None
    syntax = OutputSyntax(name, tags, tools=TOOLS, prefix=PREFIXES.get(name, ""))
    grammar = optional_calls(syntax, TOOLS)
    assert grammar is not None
    for seed in range(3):
        call = draw(COMPILER.lark(grammar), seed, endings(grammar))
        assert call is not None
        before = "" if tags is None else f"{tags.start}I had better call.{tags.end}"
        before += "" if SHAPES[name].opens_at_start else "Let me see."
        made = feed(gate(name, reasoning=tags, prefix=syntax.prefix), before)
        assert not is_bound(made)
        feed(made, call)
        assert is_bound(made)
        assert made.is_accepting()
        assert END in allowed(made)


@pytest.mark.parametrize("name", list(SHAPES))
def test_what_is_forced_is_what_is_followed(name: str) -> None:
    syntax = OutputSyntax(name, tools=TOOLS, prefix=PREFIXES.get(name, ""))
    grammar = forced_calls(syntax, TOOLS)
    assert grammar is not None
    call = draw(COMPILER.lark(grammar), 1, endings(grammar))
    assert call is not None
    assert accepts(gate(name, prefix=syntax.prefix), call)


def test_arguments_of_an_opened_call_are_bound() -> None:
    assert accepts(gate(), f"Let me look.\n{CALL}")
    made = gate()
    with pytest.raises(AssertionError, match="'7' is not allowed"):
        feed(made, f"Let me look.\n{WRONG}")


@pytest.mark.parametrize(
    "text",
    ["Just text.", 'A JSON example: {"name": "get_weather", "arguments": {}}', "<tool_cal is no mark", "<tool_ call>"],
)
def test_text_that_opens_no_call_stays_free(text: str) -> None:
    assert not is_bound(feed(gate(), text))


@pytest.mark.parametrize("name", ["llama-3", "generic"])
def test_json_is_a_call_only_with_a_tools_name_at_the_start(name: str) -> None:
    key = "parameters" if name == "llama-3" else "arguments"
    call = f'{{"name": "get_weather", "{key}": {{"city": "Rome", "days": 3}}}}'
    assert is_bound(feed(gate(name), call))
    assert is_bound(feed(gate(name), f"\n {call}"))
    assert not is_bound(feed(gate(name), f"Call this: {call}"))
    assert not is_bound(feed(gate(name), '{"name": "Anna", "age": 7}'))
    assert not is_bound(feed(gate(name), '{"name": "get_weather_of_tomorrow"}'))


def test_reasoning_opens_no_call() -> None:
    for made in (
        feed(gate(reasoning=THINK), "<think>Perhaps a "),
        feed(gate(reasoning=THINK, reasoning_open=True), "Perhaps a "),
    ):
        feed(made, "<tool_call> is due.</think>")
        assert not is_bound(made)
        assert accepts(made, CALL)


def test_reasoning_begins_only_at_the_start() -> None:
    assert accepts(gate(reasoning=THINK), f"A <think> later is text. {CALL}")


def test_an_opening_that_no_call_begins_with_is_text() -> None:
    syntax = OutputSyntax("hermes", tools=TOOLS)
    grammar = optional_calls(syntax, TOOLS)
    assert grammar is not None
    pieces = [b"<tool_call> is a mark", b"<tool_call>\n"]
    made = CallGate(lambda: COMPILER.lark(grammar), pieces, Openings((b"<tool_call>",)), None)
    made.accept(0)
    assert not is_bound(made)
    made.accept(1)
    assert is_bound(made)


def test_tools_that_no_grammar_can_be_made_of_leave_the_output_free() -> None:
    strange = (tool("f", {"properties": [1]}),)
    assert output_constraint(COMPILER, None, OutputSyntax("hermes", tools=strange), "auto") is None
    assert output_constraint(COMPILER, None, OutputSyntax("content", tools=TOOLS), "auto") is None

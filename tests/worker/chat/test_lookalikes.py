"""Text that only looks like markup stays content, to the letter."""

from __future__ import annotations

import pytest

from tests.worker.chat.answers import cuts, read, tool
from worker.chat.formats import FORMATS
from worker.chat.syntax import OutputSyntax

TOOLS = (tool("get_time", {"type": "object", "properties": {"city": {"type": "string"}}}),)

NO_CALLS = {
    "hermes": [
        "Use <tool_call> to call a tool.",
        '<tool_call>{"name": "unknown", "arguments": {}}</tool_call>',
        "<tool_call>\nnot json\n</tool_call>",
        '<tool_call>["get_time"]</tool_call>',
        "a < b and <tool",
        '<tool_call>{"arguments": {}}</tool_call>',
    ],
    "llama-3": [
        '{"name": "unknown", "parameters": {}}',
        '{"city": "Paris"}',
        "[1, 2, 3] is a list",
        '{"name": 5}',
        "{not json}",
        'Before it: {"name": "get_time", "parameters": {"city": "Paris"}}',
    ],
    "mistral": ["[TOOL_CALLS]unknown[ARGS]{}", "[TOOL_CALLS] is a token", "[TOOL_CALLS]get_time[ARGS]no object"],
    "mistral-list": ["[TOOL_CALLS] is a token", '[TOOL_CALLS][{"name": "unknown", "arguments": {}}]'],
    "qwen3-coder": [
        "#include <functional>",
        "<function=unknown>\n</function>",
        "<tool_call>\nnothing\n</tool_call>",
        "<function= get",
    ],
    "glm": ["<tool_call>unknown\n</tool_call>", "The <arg_key> tag"],
    "kimi-k2": ["<|tool_call_begin|>functions.unknown:0<|tool_call_argument_begin|>{}<|tool_call_end|>"],
    "deepseek": ["<｜tool▁calls▁begin｜>nothing", "<｜tool▁call▁begin｜>unknown<｜tool▁sep｜>{}<｜tool▁call▁end｜>"],
    "lfm2": ["<|tool_call_start|>[unknown(a=1)]", "<|tool_call_start|>get_time()", "[get_time](https://example.org)"],
    "gemma4": ["<|tool_call>call:unknown{}", "<|tool_call>nothing"],
    "minimax": ['<minimax:tool_call>\n<invoke name="unknown">\n</invoke>', "<minimax:tool_call> is a tag"],
    "functionary-v3.1": ["<function=unknown>{}</function>", "<function=get_time>no object"],
    "firefunction": [" functools is a module", 'functools[{"name": "unknown", "arguments": {}}]'],
    "generic": ['{"answer": 42}', "{}", "["],
    "content": ['<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'],
}


@pytest.mark.parametrize("name", sorted(NO_CALLS))
def test_what_is_no_call_is_content(name: str) -> None:
    syntax = OutputSyntax(format=name, tools=TOOLS)
    for text in NO_CALLS[name]:
        for fragments in cuts(text):
            answer = read(syntax, fragments)
            assert answer.calls == [], text
            assert answer.content == text


@pytest.mark.parametrize("entry", FORMATS, ids=lambda entry: str(entry.name))
def test_any_text_survives_without_tools(entry: object) -> None:
    name = entry.name  # type: ignore[attr-defined]
    text = 'Plain words, a < b > c, {braces}, [brackets] and "quotes": naïve 🦙\n\nlast line \n'
    prefix = "<|start|>assistant<|channel|>final<|message|>" if name == "gpt-oss" else ""
    if name == "muse":
        prefix = "<|start|>assistant to=user<|message|>"
    if name == "functionary-v3.2":
        text = "all\n" + text
    syntax = OutputSyntax(format=name, prefix=prefix)
    for fragments in cuts(text):
        answer = read(syntax, fragments)
        assert answer.calls == []
        assert answer.content.rstrip() == text.removeprefix("all\n").rstrip()


def test_calls_are_content_when_no_tools_were_given() -> None:
    text = '<tool_call>\n{"name": "get_time", "arguments": {"city": "Paris"}}\n</tool_call>'
    assert read(OutputSyntax(format="hermes"), tuple(text)).content == text


def test_a_call_cut_by_the_limit_keeps_what_came() -> None:
    text = '<tool_call>\n{"name": "get_time", "arguments": {"city": "Pa'
    answer = read(OutputSyntax(format="hermes", tools=TOOLS), tuple(text))
    assert [(call.name, call.arguments) for call in answer.calls] == [("get_time", '{"city": "Pa')]


def test_line_breaks_inside_json_strings_are_escaped() -> None:
    text = '<tool_call>{"name": "get_time", "arguments": {"city": "a\nb\tc"}}</tool_call>'
    answer = read(OutputSyntax(format="hermes", tools=TOOLS), tuple(text))
    assert answer.calls[0].arguments == '{"city": "a\\nb\\tc"}'


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"arguments": {"city": "Paris"}, "name": "get_time"}</tool_call>',
        '<tool_call>{"name": "get_time", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
        '<tool_call>{"type": "function", "function": {"name": "get_time", "arguments": {"city": "Paris"}}}</tool_call>',
        '<tool_call>[{"name": "get_time", "parameters": {"city": "Paris"}, "note": [1, {"a": "]"}]}]</tool_call>',
    ],
)
def test_calls_in_other_orders_and_wrappings(text: str) -> None:
    for fragments in cuts(text):
        answer = read(OutputSyntax(format="hermes", tools=TOOLS), fragments)
        assert [call.arguments for call in answer.calls] == ['{"city": "Paris"}']
        assert answer.content == ""


def test_a_call_without_arguments_gets_an_empty_object() -> None:
    answer = read(OutputSyntax(format="hermes", tools=TOOLS), ('<tool_call>{"name": "get_time"}</tool_call>',))
    assert [call.arguments for call in answer.calls] == ["{}"]


def test_ids_have_the_length_that_a_family_demands() -> None:
    answer = read(OutputSyntax(format="mistral", tools=TOOLS), ("[TOOL_CALLS]get_time[ARGS]{}",))
    assert len(answer.calls[0].id) == 9


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ('{"name": "get_time", "parameters": {"city": "Rome"}}', "get_time", '{"city": "Rome"}'),
        ('<|python_tag|>{"name": "get_time", "parameters": {"city": "Rome"}}', "get_time", '{"city": "Rome"}'),
        ('<|python_tag|>get_time.call(city="Rome")', "get_time", '{"city": "Rome"}'),
        ('<|python_tag|>print("hi")\n{"a": 1}', "python", '{"code": "print(\\"hi\\")\\n{\\"a\\": 1}"}'),
        ("<|python_tag|>{1, 2}", "python", '{"code": "{1, 2}"}'),
    ],
)
def test_what_may_stand_behind_the_python_tag(text: str, name: str, arguments: str) -> None:
    syntax = OutputSyntax(format="llama-3", tools=(*TOOLS, tool("python")))
    for fragments in cuts(text):
        answer = read(syntax, fragments)
        assert [(call.name, call.arguments) for call in answer.calls] == [(name, arguments)]
        assert answer.content == ""


def test_code_without_a_tool_for_it_is_content() -> None:
    answer = read(OutputSyntax(format="llama-3", tools=TOOLS), ("<|python_tag|>print(1)",))
    assert (answer.content, answer.calls) == ("<|python_tag|>print(1)", [])

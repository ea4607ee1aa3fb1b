"""Families are told apart by the marks in their templates."""

from __future__ import annotations

import pytest

from worker.chat.formats import FORMATS, THINK, detect_format, reasoning_tags

TEMPLATES = {
    "hermes": "{{ tools }} <tool_call>{'name': f, 'arguments': a}</tool_call>",
    "qwen3-coder": "<tool_call> <function=name> <parameter=key> </tool_call>",
    "llama-3": "<|start_header_id|>ipython<|end_header_id|> {{ tools }}",
    "mistral": "[AVAILABLE_TOOLS] [TOOL_CALLS]name[ARGS]{}",
    "mistral-list": "[AVAILABLE_TOOLS] [TOOL_CALLS][{}]",
    "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
    "deepseek-r1": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜> ```json",
    "deepseek-dsml": "{% set dsml_token = '｜DSML｜' %} function_calls",
    "glm": "<tool_call>{name}<arg_key>k</arg_key><arg_value>v</arg_value>",
    "ling": "<role>ASSISTANT</role> <tool_call> <arg_key> <arg_value>",
    "kimi-k2": "<|tool_calls_section_begin|><|tool_call_begin|>",
    "kimi-k3": "<|open|>message<|close|><|end_of_msg|>",
    "minimax": "<minimax:tool_call><invoke name=",
    "minimax-m3": "]<]minimax[>[<tool_call> <invoke name=",
    "gpt-oss": "<|channel|>analysis<|message|>",
    "muse": "<atem:function_calls> <|eom|>",
    "gemma4": "{{ '<|tool_call>call:' + name }}",
    "granite": "{{ tools }} <|tool_call|>",
    "phi-4": "<|tool|>{{ tools }}<|/tool|>",
    "cohere": "<|START_ACTION|> <|START_RESPONSE|>",
    "command-r": "<|CHATBOT_TOKEN|> Write 'Action:' followed by",
    "functionary-v3.1": "<function=example_function_name>{{ a }}</function>",
    "functionary-v3.2": ">>>all >>>${recipient}",
    "firefunction": "formatted as functools[...] {{ ' functools[' }}",
    "nemotron-v2": "<TOOLCALL>[...]</TOOLCALL>",
    "seed-oss": "<seed:tool_call><function=name><parameter=key>",
    "apertus": "<|tools_prefix|>[...]<|tools_suffix|>",
    "apriel-1.6": "[BEGIN FINAL RESPONSE] <tool_calls>",
    "tool-calls-list": "<tool_calls>[...]</tool_calls>",
    "lfm2": "List of tools: <|tool_list_start|>",
    "gigachat": "<|role_sep|> <|message_sep|>",
    "gigachat-3.1": "<|role_sep|> <|message_sep|> <|function_call|>",
    "minicpm5": '<function name="f"><param name="k">',
    "generic": "{% if tools %}{{ tools }}{% endif %}",
    "content": "{{ messages[0].content }}",
}


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_a_family_is_recognised(name: str) -> None:
    assert detect_format(TEMPLATES[name]).name == name


def test_every_family_is_tried() -> None:
    assert {entry.name for entry in FORMATS} == set(TEMPLATES)


def test_reasoning_tags_come_from_the_format_or_the_template() -> None:
    assert reasoning_tags(detect_format("<tool_call>"), "<tool_call>") is None
    assert reasoning_tags(detect_format("<tool_call>"), "<tool_call> <think> </think>") == THINK
    tags = reasoning_tags(detect_format("<|channel|>"), "<|channel|>")
    assert tags is not None
    assert tags.start == "<|channel|>analysis<|message|>"

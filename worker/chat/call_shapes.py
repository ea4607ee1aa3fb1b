"""The table of shapes: what a forced call looks like in each format."""

from __future__ import annotations

from worker.chat import gemma4, harmony, minimax_m3
from worker.chat.call_grammar import Shape, TaggedArguments, WholeArguments, term


def _list(opening: str, closing: str, arguments: str = "arguments") -> WholeArguments:
    return WholeArguments(
        before=term('{"name": "'),
        between=term(f'", "{arguments}": '),
        after=term("}"),
        begin=term(f"{opening}["),
        separator=term(", "),
        end=term(f"]{closing}"),
    )


_ID = "/[0-9]{1,2}/"
_NS = minimax_m3.TOKEN

SHAPES: dict[str, Shape] = {
    "hermes": WholeArguments(
        before=term('<tool_call>\n{"name": "'),
        between=term('", "arguments": '),
        after=term("}\n</tool_call>"),
        separator=term("\n"),
    ),
    "granite": _list("<|tool_call|>", ""),
    "phi-4": _list("<|tool_call|>", "<|/tool_call|>"),
    "llama-3": WholeArguments(term('{"name": "'), term('", "parameters": '), term("}"), separator=None, has_mark=False),
    "generic": WholeArguments(term('{"name": "'), term('", "arguments": '), term("}"), separator=None, has_mark=False),
    "nemotron-v2": _list("<TOOLCALL>", "</TOOLCALL>"),
    "apriel-1.6": _list("<tool_calls>", "</tool_calls>"),
    "tool-calls-list": _list("<tool_calls>", "</tool_calls>"),
    "firefunction": _list(" functools", ""),
    "mistral-list": _list("[TOOL_CALLS]", ""),
    "mistral": WholeArguments(term("[TOOL_CALLS]"), term("[ARGS]")),
    "apertus": WholeArguments(
        term('{"'), term('": '), term("}"), term("<|tools_prefix|>["), term(", "), term("]<|tools_suffix|>")
    ),
    "cohere": WholeArguments(
        before=f"{term(chr(10) + '    {')} {term(chr(34) + 'tool_call_id' + chr(34) + ': ' + chr(34))} {_ID} "
        + term('", "tool_name": "'),
        between=term('", "parameters": '),
        after=term("}"),
        begin=term("<|START_ACTION|>["),
        separator=term(","),
        end=term("\n]<|END_ACTION|>"),
    ),
    "command-r": WholeArguments(
        before=term('{"tool_name": "'),
        between=term('", "parameters": '),
        after=term("}"),
        begin=term("Action:\n```json\n["),
        separator=term(", "),
        end=term("]\n```"),
    ),
    "gigachat": WholeArguments(
        before=term('<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "'),
        between=term('", "arguments": '),
        after=term("}"),
        separator=None,
    ),
    "gigachat-3.1": WholeArguments(
        before=term('<|function_call|>{"name": "'),
        between=term('", "arguments": '),
        after=term("}"),
        separator=None,
    ),
    "functionary-v3.1": WholeArguments(term("<function="), term(">"), term("</function>")),
    "functionary-v3.2": WholeArguments(before="", between=term("\n"), separator=term("\n>>>"), has_mark=False),
    "kimi-k2": WholeArguments(
        before=term("<|tool_call_begin|>functions."),
        between=f"{term(':')} {_ID} {term('<|tool_call_argument_begin|>')}",
        after=term("<|tool_call_end|>"),
        begin=term("<|tool_calls_section_begin|>"),
        end=term("<|tool_calls_section_end|>"),
    ),
    "deepseek": WholeArguments(
        before=term("<｜tool▁call▁begin｜>"),
        between=term("<｜tool▁sep｜>"),
        after=term("<｜tool▁call▁end｜>"),
        begin=term("<｜tool▁calls▁begin｜>"),
        end=term("<｜tool▁calls▁end｜>"),
    ),
    "deepseek-r1": WholeArguments(
        before=term("<｜tool▁call▁begin｜>function<｜tool▁sep｜>"),
        between=term("\n```json\n"),
        after=term("\n```<｜tool▁call▁end｜>"),
        begin=term("<｜tool▁calls▁begin｜>"),
        separator=term("\n"),
        end=term("<｜tool▁calls▁end｜>"),
    ),
    "gpt-oss": WholeArguments(
        before=term(f"{harmony.CHANNEL}commentary to=functions."),
        between=term(f" {harmony.CONSTRAIN}json{harmony.MESSAGE}"),
        separator=None,
    ),
    "qwen3-coder": TaggedArguments(
        open="<tool_call>\n<function={name}>\n",
        parameter="<parameter={key}>\n",
        close="\n</parameter>",
        after_parameter="\n",
        end_call="</function>\n</tool_call>",
        separator=term("\n"),
    ),
    "seed-oss": TaggedArguments(
        open="<seed:tool_call>\n<function={name}>\n",
        parameter="<parameter={key}>",
        close="</parameter>",
        after_parameter="\n",
        end_call="</function>\n</seed:tool_call>",
        separator=term("\n"),
    ),
    "minimax": TaggedArguments(
        open='<invoke name="{name}">\n',
        parameter='<parameter name="{key}">',
        close="</parameter>",
        after_parameter="\n",
        end_call="</invoke>\n",
        begin=term("<minimax:tool_call>\n"),
        end=term("</minimax:tool_call>"),
    ),
    "deepseek-dsml": TaggedArguments(
        open='<｜DSML｜invoke name="{name}">\n',
        parameter='<｜DSML｜parameter name="{key}" string="{string}">',
        close="</｜DSML｜parameter>",
        after_parameter="\n",
        end_call="</｜DSML｜invoke>\n",
        begin=f"({term('<｜DSML｜function_calls>')} | {term('<｜DSML｜tool_calls>')}) {term(chr(10))}",
        end=f"({term('</｜DSML｜function_calls>')} | {term('</｜DSML｜tool_calls>')})",
    ),
    "glm": TaggedArguments(
        open="<tool_call>{name}\n",
        parameter="<arg_key>{key}</arg_key>\n<arg_value>",
        close="</arg_value>",
        after_parameter="\n",
        end_call="</tool_call>",
        separator=term("\n"),
    ),
    "kimi-k3": TaggedArguments(
        open='<|open|>call tool="{name}" index="1"<|sep|>',
        parameter='<|open|>argument key="{key}"<|sep|>',
        close="<|close|>argument<|sep|>",
        end_call="<|close|>call<|sep|>",
        begin=term("<|open|>tools<|sep|>"),
        end=term("<|close|>tools<|sep|>"),
    ),
    "minicpm5": TaggedArguments(
        open='<function name="{name}">',
        parameter='<param name="{key}">',
        close="</param>",
        end_call="</function>",
    ),
    "muse": TaggedArguments(
        open=' to={name}<|message|><atem:function_calls>\n<atem:invoke name="{name}">\n',
        parameter='<atem:parameter name="{key}">',
        close="</atem:parameter>",
        after_parameter="\n",
        end_call="</atem:invoke>\n</atem:function_calls>",
        separator=None,
        has_mark=False,
    ),
    "minimax-m3": TaggedArguments(
        open=f'{minimax_m3.CALL}{{name}}">',
        parameter=f"{_NS}<{{key}}>",
        close=f"{_NS}</{{key}}>",
        end_call=f"{minimax_m3.CALL_END}\n",
        begin=term(f"{minimax_m3.SECTION}\n"),
        end=term(minimax_m3.SECTION_END),
    ),
    "gemma4": TaggedArguments(
        open=f"{gemma4.CALL}call:{{name}}{{{{",
        parameter="{key}:",
        close="",
        end_call=f"}}{gemma4.CALL_END}",
        comma=",",
        quote=gemma4.QUOTE,
    ),
    "lfm2": TaggedArguments(
        open="{name}(",
        parameter="{key}=",
        close="",
        end_call=")",
        begin=term("<|tool_call_start|>["),
        separator=term(", "),
        end=term("]<|tool_call_end|>"),
        comma=", ",
        json_strings=True,
    ),
}
SHAPES["ling"] = SHAPES["glm"]


ANSWERS: dict[str, tuple[str, str]] = {
    "gpt-oss": (harmony.FINAL, ""),
    "functionary-v3.2": ("all\n", ""),
    "kimi-k3": ("<|open|>response<|sep|>", "<|close|>response<|sep|><|close|>message<|sep|>"),
    "muse": (" to=user<|message|>", ""),
}
"""What stands around the content of an answer, in the families that mark it."""

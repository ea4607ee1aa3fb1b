"""The table of output formats: how each family is recognised by its template, and how its output is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from worker.chat import channels, gemma4, harmony, llama3, minimax_m3
from worker.chat.content import content_only
from worker.chat.json_calls import JsonCalls
from worker.chat.named_calls import NamedCalls
from worker.chat.pieces import Parser
from worker.chat.pythonic import PythonicCalls
from worker.chat.stream import Steps, Stream, StreamParser
from worker.chat.syntax import OutputSyntax, ReasoningTags
from worker.chat.tagged_calls import TaggedCalls

Reader = Callable[[Stream, OutputSyntax], Steps[None]]


@dataclass(frozen=True, slots=True)
class Format:
    """One family.

    A template belongs to it when it contains all texts of one of `signs` and none of `not_with`. `preserved_tokens` are
    special tokens whose text the parser must see in the output. `content_start` comes before the content of an
    answer. `thinks` says whether reasoning is on where the request does not say. `id_length` is what its templates
    demand of the ids of calls.
    """

    name: str
    read: Reader
    signs: tuple[tuple[str, ...], ...] = ()
    not_with: tuple[str, ...] = ()
    reasoning: ReasoningTags | None = None
    preserved_tokens: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()
    content_start: str = ""
    thinks: bool = True
    id_length: int = 32

    def recognises(self, source: str) -> bool:
        """Whether a template's text is one of this family."""
        fits = any(all(sign in source for sign in signs) for signs in self.signs)
        return fits and not any(sign in source for sign in self.not_with)


THINK = ReasoningTags("<think>", ("</think>",))
_BRACKET_THINK = ReasoningTags("[THINK]", ("[/THINK]",))
_COHERE_THINK = ReasoningTags("<|START_THINKING|>", ("<|END_THINKING|>",))
_APRIEL_THINK = ReasoningTags("Here are my reasoning steps:\n", ("[BEGIN FINAL RESPONSE]",), opening="text")

_HERMES = JsonCalls(marks=("<tool_call>",), ends=("</tool_call>",))
_GENERIC = JsonCalls(marks=("<tool_call>", "```json\n"), ends=("</tool_call>", "```"), bare=True)
_QWEN_CODER = TaggedCalls(
    sections=("<tool_call>",),
    call_begin="<function=",
    name_end=(">",),
    key_begin="<parameter=",
    key_end=">",
    value_ends=("</parameter>",),
    call_ends=("</function>",),
    section_ends=("</tool_call>",),
    begins_with_call=True,
    strips_lines=True,
    calls_end_reasoning=True,
)
_SEED = TaggedCalls(
    sections=("<seed:tool_call>",),
    call_begin="<function=",
    name_end=(">",),
    key_begin="<parameter=",
    key_end=">",
    value_ends=("</parameter>",),
    call_ends=("</function>",),
    section_ends=("</seed:tool_call>",),
)
_MINIMAX = TaggedCalls(
    sections=("<minimax:tool_call>",),
    call_begin='<invoke name="',
    name_end=('">',),
    key_begin='<parameter name="',
    key_end='">',
    value_ends=("</parameter>",),
    call_ends=("</invoke>",),
    section_ends=("</minimax:tool_call>",),
)
_DSML = TaggedCalls(
    sections=("<｜DSML｜function_calls>", "<｜DSML｜tool_calls>"),
    call_begin='<｜DSML｜invoke name="',
    name_end=('">',),
    key_begin='<｜DSML｜parameter name="',
    key_end=">",
    value_ends=("</｜DSML｜parameter>",),
    call_ends=("</｜DSML｜invoke>",),
    section_ends=("</｜DSML｜function_calls>", "</｜DSML｜tool_calls>"),
    has_attributes=True,
    string_attribute="string",
    calls_end_reasoning=True,
)
_GLM = TaggedCalls(
    sections=("<tool_call>",),
    call_begin="",
    name_end=("<arg_key>", "</tool_call>", "\n"),
    key_begin="<arg_key>",
    key_end="</arg_key>",
    value_ends=("</arg_value>",),
    call_ends=("</tool_call>",),
    value_begin="<arg_value>",
    calls_end_reasoning=True,
    dropped=("<|role_end|>",),
)
_GLM_TOKENS = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_K3_THINK = ReasoningTags("<|open|>think<|sep|>", ("<|close|>think<|sep|>", "<|open|>response<|sep|>"))
_K3 = TaggedCalls(
    sections=("<|open|>tools<|sep|>",),
    call_begin='<|open|>call tool="',
    name_end=("<|sep|>",),
    key_begin='<|open|>argument key="',
    key_end="<|sep|>",
    value_ends=("<|close|>argument<|sep|>",),
    call_ends=("<|close|>call<|sep|>",),
    section_ends=("<|close|>tools<|sep|>",),
    has_attributes=True,
    dropped=(
        "<|open|>response<|sep|>",
        "<|close|>response<|sep|>",
        "<|close|>message<|sep|>",
        "<|end_of_msg|>",
    ),
)
_MINICPM = TaggedCalls(
    sections=(),
    call_begin='<function name="',
    name_end=('">',),
    key_begin='<param name="',
    key_end='">',
    value_ends=("</param>",),
    call_ends=("</function>",),
    begins_with_call=True,
    has_cdata=True,
)
_DEEPSEEK_TOKENS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
)
_DEEPSEEK = NamedCalls(
    begin=("<｜tool▁call▁begin｜>",),
    separators=("<｜tool▁sep｜>", "\n```json\n"),
    prefixes=("function<｜tool▁sep｜>",),
    ends=("```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"),
    sections=("<｜tool▁calls▁begin｜>", "<｜tool_calls_begin｜>", "<｜tool calls begin｜>", "<｜tool▁calls｜>"),
    dropped=("<｜tool▁calls▁end｜>",),
)
_KIMI_TOKENS = (
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
)
_KIMI = NamedCalls(
    begin=("<|tool_call_begin|>",),
    separators=("<|tool_call_argument_begin|>",),
    ends=("<|tool_call_end|>",),
    sections=("<|tool_calls_section_begin|>",),
    name_pattern=r"(?:functions\.)?(?P<name>.+?)(?::\d+)?",
    whole_is_id=True,
    calls_end_reasoning=True,
    dropped=("<|tool_calls_section_end|>",),
)
_MISTRAL = NamedCalls(begin=("[TOOL_CALLS]",), separators=("[ARGS]",), id_mark="[CALL_ID]")
_MISTRAL_LIST = JsonCalls(marks=("[TOOL_CALLS]",), id_last=True)
_COHERE_MARKS = (
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_TEXT|>",
    "<|END_TEXT|>",
    "<|CHATBOT_TOKEN|>",
    "<|END_OF_TURN_TOKEN|>",
)
_COHERE = JsonCalls(
    marks=("<|START_ACTION|>",), ends=("<|END_ACTION|>",), dropped=_COHERE_MARKS, calls_end_reasoning=True
)
_COMMAND_R = JsonCalls(marks=("Action:\n```json\n", "Action: ```json\n"), ends=("```",), dropped=_COHERE_MARKS)

FORMATS: tuple[Format, ...] = (
    Format(
        "mistral",
        _MISTRAL.read,
        signs=(("[TOOL_CALLS]", "[ARGS]"),),
        reasoning=_BRACKET_THINK,
        preserved_tokens=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"),
        id_length=9,
    ),
    Format(
        "mistral-list",
        _MISTRAL_LIST.read,
        signs=(("[TOOL_CALLS]",),),
        preserved_tokens=("[TOOL_CALLS]",),
        id_length=9,
    ),
    Format(
        "gpt-oss",
        harmony.harmony,
        signs=(("<|channel|>",),),
        reasoning=ReasoningTags(harmony.ANALYSIS, (harmony.END + harmony.NEXT,)),
        content_start=harmony.FINAL,
        preserved_tokens=harmony.TOKENS,
    ),
    Format(
        "muse",
        channels.muse,
        signs=(("<atem:function_calls>", "<|eom|>"),),
        reasoning=ReasoningTags(" to=self<|message|>", ("<|eom|><|start|>assistant",)),
        content_start=" to=user<|message|>",
        preserved_tokens=channels.MUSE_TOKENS,
    ),
    Format("functionary-v3.2", channels.functionary, signs=((">>>all", ">>>${recipient}"),), content_start="all\n"),
    Format(
        "functionary-v3.1",
        NamedCalls(begin=("<function=",), separators=(">",), ends=("</function>",)).read,
        signs=(("<function=", "</function>", "functionary"), ("<function=example_function_name>",)),
        not_with=("<parameter=",),
    ),
    Format(
        "kimi-k2",
        _KIMI.read,
        signs=(("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),),
        reasoning=THINK,
        preserved_tokens=_KIMI_TOKENS,
    ),
    Format(
        "kimi-k3",
        _K3.read,
        signs=(("<|open|>", "<|close|>", "<|end_of_msg|>"),),
        content_start="<|open|>response<|sep|>",
        reasoning=_K3_THINK,
        preserved_tokens=("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
    ),
    Format(
        "minimax-m3",
        minimax_m3.minimax_m3,
        signs=((minimax_m3.TOKEN, "<tool_call>", "<invoke name="),),
        reasoning=ReasoningTags("<mm:think>", ("</mm:think>",)),
        preserved_tokens=minimax_m3.TOKENS,
    ),
    Format(
        "ling",
        _GLM.read,
        signs=(("<role>ASSISTANT</role>", "<arg_key>"),),
        preserved_tokens=_GLM_TOKENS,
        reasoning=ReasoningTags("<think>", ("</think>",), opening="hidden"),
    ),
    Format(
        "glm",
        _GLM.read,
        signs=(("<arg_key>", "<arg_value>", "<tool_call>"),),
        preserved_tokens=_GLM_TOKENS,
        reasoning=THINK,
    ),
    Format(
        "cohere",
        _COHERE.read,
        signs=(("<|START_ACTION|>",),),
        reasoning=_COHERE_THINK,
        preserved_tokens=("<|START_ACTION|>", "<|END_ACTION|>", *_COHERE_MARKS[:4]),
    ),
    Format("command-r", _COMMAND_R.read, signs=(("<|CHATBOT_TOKEN|>", "Action:"),)),
    Format(
        "lfm2",
        PythonicCalls(marks=("<|tool_call_start|>",), ends=("<|tool_call_end|>",)).read,
        signs=(("<|tool_list_start|>",), ("List of tools: [",)),
        preserved_tokens=("<|tool_call_start|>", "<|tool_call_end|>"),
        reasoning=THINK,
    ),
    Format(
        "gigachat-3.1",
        JsonCalls(marks=("<|function_call|>",)).read,
        signs=(("<|role_sep|>", "<|message_sep|>", "<|function_call|>"),),
        preserved_tokens=("<|function_call|>",),
    ),
    Format(
        "gigachat",
        JsonCalls(marks=("<|message_sep|>\n\nfunction call<|role_sep|>\n",)).read,
        signs=(("<|role_sep|>", "<|message_sep|>"),),
        preserved_tokens=("<|message_sep|>", "<|role_sep|>"),
    ),
    Format(
        "minimax",
        _MINIMAX.read,
        signs=(("<minimax:tool_call>",),),
        preserved_tokens=("<minimax:tool_call>", "</minimax:tool_call>"),
        reasoning=THINK,
    ),
    Format(
        "deepseek-dsml", _DSML.read, signs=(("dsml_token", "DSML"),), reasoning=THINK, preserved_tokens=("｜DSML｜",)
    ),
    Format(
        "gemma4",
        gemma4.gemma4,
        signs=(("'<|tool_call>call:'",), ('"<|tool_call>call:"',)),
        reasoning=ReasoningTags(gemma4.THOUGHT + "\n", (gemma4.CHANNEL_END,)),
        preserved_tokens=gemma4.TOKENS,
    ),
    Format("minicpm5", _MINICPM.read, signs=(('<function name="', '<param name="'),), reasoning=THINK),
    Format(
        "seed-oss",
        _SEED.read,
        signs=(("<seed:tool_call>",),),
        reasoning=ReasoningTags("<seed:think>", ("</seed:think>",)),
        preserved_tokens=("<seed:tool_call>", "</seed:tool_call>"),
    ),
    Format(
        "qwen3-coder",
        _QWEN_CODER.read,
        signs=(("<tool_call>", "<function=", "<parameter="),),
        preserved_tokens=("<tool_call>", "</tool_call>"),
    ),
    Format(
        "deepseek-r1",
        _DEEPSEEK.read,
        signs=(("<｜tool▁calls▁begin｜>", "```json"),),
        reasoning=THINK,
        preserved_tokens=_DEEPSEEK_TOKENS,
    ),
    Format(
        "deepseek",
        _DEEPSEEK.read,
        signs=(("<｜tool▁calls▁begin｜>",), ("<｜tool▁call▁begin｜>",)),
        reasoning=THINK,
        preserved_tokens=_DEEPSEEK_TOKENS,
    ),
    Format(
        "apertus",
        JsonCalls(marks=("<|tools_prefix|>",), ends=("<|tools_suffix|>",), name_is_key=True).read,
        signs=(("<|tools_prefix|>",),),
        reasoning=ReasoningTags("<|inner_prefix|>", ("<|inner_suffix|>",)),
        preserved_tokens=("<|tools_prefix|>", "<|tools_suffix|>"),
        thinks=False,
    ),
    Format(
        "nemotron-v2",
        JsonCalls(marks=("<TOOLCALL>",), ends=("</TOOLCALL>",)).read,
        signs=(("<TOOLCALL>",),),
        reasoning=THINK,
        preserved_tokens=("<TOOLCALL>", "</TOOLCALL>"),
    ),
    Format(
        "apriel-1.6",
        JsonCalls(marks=("<tool_calls>",), ends=("</tool_calls>",)).read,
        signs=(("[BEGIN FINAL RESPONSE]", "<tool_calls>"),),
        reasoning=_APRIEL_THINK,
        preserved_tokens=("<tool_calls>", "</tool_calls>"),
    ),
    Format(
        "tool-calls-list",
        JsonCalls(marks=("<tool_calls>",), ends=("</tool_calls>",)).read,
        signs=(("<tool_calls>",),),
        preserved_tokens=("<tool_calls>", "</tool_calls>"),
    ),
    Format("firefunction", JsonCalls(marks=(" functools", "functools")).read, signs=((" functools[",),)),
    Format("hermes", _HERMES.read, signs=(("<tool_call>",),), preserved_tokens=("<tool_call>", "</tool_call>")),
    Format(
        "phi-4",
        JsonCalls(marks=("<|tool_call|>",), ends=("<|/tool_call|>",)).read,
        signs=(("<|tool_call|>", "<|/tool_call|>"), ("<|tool|>", "<|/tool|>")),
        preserved_tokens=("<|tool_call|>", "<|/tool_call|>"),
    ),
    Format(
        "granite",
        JsonCalls(marks=("<|tool_call|>", "<tool_call>")).read,
        signs=(("<|tool_call|>",),),
        preserved_tokens=("<|tool_call|>",),
    ),
    Format(
        "llama-3",
        llama3.llama3,
        signs=(("<|start_header_id|>ipython<|end_header_id|>",), ("<|python_tag|>",)),
        preserved_tokens=(llama3.PYTHON_TAG,),
    ),
    Format("generic", _GENERIC.read, signs=(("tools",),)),
    Format("content", content_only, signs=((),)),
)
"""The first that recognises a template's text is its format."""

_BY_NAME = {entry.name: entry for entry in FORMATS}

_COMMON_TAGS = (
    THINK,
    _BRACKET_THINK,
    ReasoningTags("<seed:think>", ("</seed:think>",)),
    _COHERE_THINK,
    ReasoningTags("<|inner_prefix|>", ("<|inner_suffix|>",)),
)


def detect_format(source: str) -> Format:
    """The format of the answers that a template asks for."""
    return next(entry for entry in FORMATS if entry.recognises(source))


def reasoning_tags(entry: Format, source: str) -> ReasoningTags | None:
    """The format's own tags, or the usual ones if the template names them."""
    if entry.reasoning is not None:
        return entry.reasoning
    return next((tags for tags in _COMMON_TAGS if tags.start in source or tags.end in source), None)


def output_parser(syntax: OutputSyntax) -> Parser:
    """A fresh parser for one answer."""
    entry = _BY_NAME[syntax.format]
    return StreamParser(lambda stream: entry.read(stream, syntax), entry.id_length)

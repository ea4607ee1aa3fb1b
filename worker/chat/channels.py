"""Families that address each part of an answer, and each in its own way: Functionary 3.2 and Muse."""

from __future__ import annotations

import re
from typing import Final

from worker.chat.calls import OpenCall
from worker.chat.content import ReasoningSink, TrimmedSink
from worker.chat.json_text import read_json
from worker.chat.stream import Steps, Stream
from worker.chat.syntax import OutputSyntax
from worker.chat.tagged_calls import TaggedCalls

FUNCTIONARY_MARK = ">>>"
_MAX_NAME_CHARS = 256


def functionary(stream: Stream, syntax: OutputSyntax) -> Steps[None]:
    """`recipient`, a line break, and what is for it; further parts begin with `>>>`. `all` is the user."""
    while True:
        stream.attempt()
        recipient, mark = yield from stream.head(("\n", "{"), _MAX_NAME_CHARS)
        name = recipient.strip()
        if mark == "{":
            stream.text = mark + stream.text
        if syntax.tool(name) is not None and mark:
            call = OpenCall(stream, name)
            yield from read_json(stream, call.arguments)
            yield from stream.spaces()
            if not (yield from stream.accept(FUNCTIONARY_MARK)):
                return
            continue
        if name == "all" and mark == "\n":
            stream.commit()
        else:
            stream.give_up()
            if mark == "{" and stream.text.startswith("{{"):
                stream.text = stream.text[1:]
        content = TrimmedSink(stream.content, begun=True)
        if not (yield from stream.until((FUNCTIONARY_MARK,), content)):
            content.flush()
            return


MUSE_TOKENS = ("<|message|>", "<|eom|>", "<|eot|>", "<|start|>")
_MUSE_CALLS: Final = TaggedCalls(
    sections=("<atem:function_calls>",),
    call_begin='<atem:invoke name="',
    name_end=('">',),
    key_begin='<atem:parameter name="',
    key_end='">',
    value_ends=("</atem:parameter>",),
    call_ends=("</atem:invoke>",),
    section_ends=("</atem:function_calls>",),
)
_TO: Final = re.compile(r"\bto=(\S+)")


def muse(stream: Stream, syntax: OutputSyntax) -> Steps[None]:
    """Messages ` to=user`, ` to=self` (reasoning) or ` to=<tool>`, each ended by `<|eom|>` or `<|eot|>`."""
    ends = ("<|eom|>", "<|eot|>")
    opening, is_message, _ = syntax.prefix.rpartition("<|start|>")[2].partition("<|message|>")
    while True:
        if is_message:
            header = opening
        else:
            header, mark = yield from stream.head(("<|message|>",), _MAX_NAME_CHARS)
            if not mark:
                stream.content(header if _TO.search(header) is None else "")
                return
        is_message = ""
        found = _TO.search(header)
        recipient = found.group(1) if found is not None else "user"
        if recipient == "self":
            yield from stream.until(ends, ReasoningSink(stream, syntax))
        elif syntax.tool(recipient) is not None:
            yield from stream.until(("<atem:function_calls>", *ends), lambda text: None)
            yield from _MUSE_CALLS.section(stream, syntax)
            yield from stream.until(ends, lambda text: None)
        else:
            yield from stream.until(ends, TrimmedSink(stream.content, begun=True))
        yield from stream.spaces()
        yield from stream.accept("<|start|>")
        if not (yield from stream.peek()):
            return

"""Families that write messages with a header: who it is for, on which channel, then the text.

gpt-oss (harmony) and LLM-jp, which puts spaces behind its marks.
"""

from __future__ import annotations

import re

from worker.chat.calls import OpenCall
from worker.chat.content import ReasoningSink, TrimmedSink
from worker.chat.json_text import read_json
from worker.chat.stream import Steps, Stream
from worker.chat.syntax import OutputSyntax

CHANNEL, MESSAGE, START, END = "<|channel|>", "<|message|>", "<|start|>", "<|end|>"
CONSTRAIN, CALL, RETURN = "<|constrain|>", "<|call|>", "<|return|>"
ANALYSIS, FINAL = f"{CHANNEL}analysis{MESSAGE}", f"{CHANNEL}final{MESSAGE}"
NEXT = f"{START}assistant"
TOKENS = (CHANNEL, MESSAGE, START, END, CONSTRAIN, CALL, RETURN)

_ENDS = (END, CALL, RETURN, START)
_RECIPIENT = re.compile(r"\bto=(?P<name>[^\s<]+)")
_MAX_HEADER_CHARS = 1024
_NOBODY = frozenset({"", "assistant", "user", "all"})
"""Recipients that are no tools."""


def harmony(stream: Stream, syntax: OutputSyntax) -> Steps[None]:
    """Analysis is reasoning, a message to a function is a call, messages to others are dropped, the rest is content."""
    opening = syntax.prefix.rpartition(START)[2]
    header, is_message, _ = opening.partition(MESSAGE)
    while True:
        if not is_message:
            text, mark = yield from stream.head((MESSAGE,), _MAX_HEADER_CHARS)
            if not mark:
                stream.content(text if CHANNEL not in text and "to=" not in text else "")
                return
            header = text
        is_message = ""
        yield from _message(stream, syntax, header)
        yield from stream.spaces()
        yield from stream.accept(START)
        if not (yield from stream.peek()):
            return


def _message(stream: Stream, syntax: OutputSyntax, header: str) -> Steps[None]:
    channel = header.rpartition(CHANNEL)[2].strip().partition(" ")[0]
    recipient = _RECIPIENT.search(header)
    name = recipient["name"] if recipient is not None else ""
    yield from stream.accept(" ")
    if name.startswith("functions.") and syntax.tool(name.removeprefix("functions.")) is not None:
        call = OpenCall(stream, name.removeprefix("functions."))
        yield from read_json(stream, call.arguments)
        yield from stream.until(_ENDS, lambda text: None)
    elif channel == "analysis" and name in _NOBODY:
        sink = ReasoningSink(stream, syntax)
        if MESSAGE not in syntax.prefix.rpartition(START)[2]:
            sink.tag(ANALYSIS)
        sink.tag((yield from stream.until(_ENDS, sink)))
    elif name not in _NOBODY:
        yield from stream.until(_ENDS, lambda text: None)
    else:
        yield from stream.until(_ENDS, TrimmedSink(stream.content, begun=True))

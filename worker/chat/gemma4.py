"""Gemma 4: calls as `call:name{key:value}` with quotes that are tokens of their own, thoughts on a channel."""

from __future__ import annotations

from worker.chat.calls import OpenCall
from worker.chat.content import ReasoningSink, TrimmedSink
from worker.chat.json_text import quoted, read_json
from worker.chat.stream import Steps, Stream
from worker.chat.syntax import OutputSyntax

CALL, CALL_END, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
THOUGHT, CHANNEL, CHANNEL_END = "<|channel>thought", "<|channel>", "<channel|>"
TOKENS = (CALL, CALL_END, QUOTE, CHANNEL, CHANNEL_END)

_MAX_NAME_CHARS = 256
_MAX_DEPTH = 64
_DELIMITERS = ",:{}[]<"


def gemma4(stream: Stream, syntax: OutputSyntax) -> Steps[None]:
    """Thoughts and calls may stand anywhere; marks that open or close nothing are dropped."""
    content = TrimmedSink(stream.content, begun=True)
    if syntax.reasoning_open:
        yield from _thought(stream, syntax)
    calls = (CALL,) if syntax.tools else ()
    while True:
        mark = yield from stream.until((THOUGHT, CHANNEL, CHANNEL_END, *calls), content)
        if not mark:
            content.flush()
            return
        if mark == THOUGHT:
            content.drop()
            yield from _thought(stream, syntax)
        elif mark == CALL:
            stream.attempt()
            if (yield from _call(stream, syntax)):
                stream.commit()
                content.drop()
            else:
                stream.give_up()
                content(mark)


def _thought(stream: Stream, syntax: OutputSyntax) -> Steps[None]:
    sink = ReasoningSink(stream, syntax)
    sink.tag(THOUGHT)
    ends = (CHANNEL_END, CALL) if syntax.tools else (CHANNEL_END,)
    end = yield from stream.until(ends, sink)
    if end == CALL:
        stream.text = CALL + stream.text
        return
    sink.tag(end)


def _call(stream: Stream, syntax: OutputSyntax) -> Steps[bool]:
    yield from stream.spaces()
    if not (yield from stream.accept("call:")):
        return False
    name, mark = yield from stream.head(("{",), _MAX_NAME_CHARS)
    if not mark or syntax.tool(name.strip()) is None:
        return False
    call = OpenCall(stream, name.strip())
    call.arguments("{")
    if (yield from _members(stream, call, 1)):
        yield from stream.accept(CALL_END)
    return True


def _members(stream: Stream, call: OpenCall, depth: int) -> Steps[bool]:
    """The members of an object behind its brace, and the brace that ends it."""
    first = True
    while True:
        yield from stream.spaces(" \n\t,")
        if (yield from stream.accept("}")):
            call.arguments("}")
            return True
        if stream.ended and not stream.text:
            return False
        key = yield from _key(stream)
        if not (yield from stream.accept(":")):
            return False
        call.arguments(f'{"" if first else ", "}"{quoted(key)}": ')
        first = False
        if not (yield from _value(stream, call, depth)):
            return False


def _key(stream: Stream) -> Steps[str]:
    if (yield from stream.accept(QUOTE)):
        parts: list[str] = []
        yield from stream.until((QUOTE,), parts.append)
        return "".join(parts)
    return (yield from stream.word(_DELIMITERS)).strip().strip('"')


def _value(stream: Stream, call: OpenCall, depth: int) -> Steps[bool]:
    yield from stream.spaces()
    if depth > _MAX_DEPTH:
        return False
    if (yield from stream.accept(QUOTE)):
        call.arguments('"')
        if not (yield from stream.until((QUOTE,), lambda text: call.arguments(quoted(text)))):
            return False
        call.arguments('"')
        return True
    if (yield from stream.peek()) == '"':
        return (yield from read_json(stream, call.arguments))
    if (yield from stream.accept("{")):
        call.arguments("{")
        return (yield from _members(stream, call, depth + 1))
    if (yield from stream.accept("[")):
        call.arguments("[")
        return (yield from _items(stream, call, depth + 1))
    scalar = (yield from stream.word(_DELIMITERS)).strip()
    call.arguments(scalar)
    return bool(scalar)


def _items(stream: Stream, call: OpenCall, depth: int) -> Steps[bool]:
    first = True
    while True:
        yield from stream.spaces(" \n\t,")
        if (yield from stream.accept("]")):
            call.arguments("]")
            return True
        if stream.ended and not stream.text:
            return False
        if not first:
            call.arguments(", ")
        first = False
        if not (yield from _value(stream, call, depth)):
            return False

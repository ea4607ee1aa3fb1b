"""Families that write calls as Python: `[name(key=value, …), …]` (LFM2, Llama 4)."""

from __future__ import annotations

from dataclasses import dataclass

from worker.chat.calls import OpenCall
from worker.chat.content import content_and_calls
from worker.chat.json_text import quoted
from worker.chat.stream import Steps, Stream
from worker.chat.syntax import OutputSyntax

_MAX_NAME_CHARS = 256
_MAX_DEPTH = 64
_WORDS = {"True": "true", "False": "false", "None": "null"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}


@dataclass(frozen=True, slots=True)
class PythonicCalls:
    """Calls stand in a list behind one of `marks`, with one of `ends` behind it."""

    marks: tuple[str, ...]
    ends: tuple[str, ...] = ()
    bare: bool = False

    def read(self, stream: Stream, syntax: OutputSyntax) -> Steps[None]:
        """The family's parser."""
        yield from content_and_calls(stream, syntax, self.marks, self._section)

    def _section(self, stream: Stream, syntax: OutputSyntax, mark: str) -> Steps[bool]:
        yield from stream.spaces()
        if not (yield from stream.accept("[")):
            return False
        found = False
        while True:
            yield from stream.spaces(" \n\t,")
            if (yield from stream.accept("]")):
                break
            if not (yield from _call(stream, syntax)):
                return found
            found = True
        yield from stream.accept(*self.ends)
        return found


def _call(stream: Stream, syntax: OutputSyntax) -> Steps[bool]:
    name, mark = yield from stream.head(("(",), _MAX_NAME_CHARS)
    if not mark or syntax.tool(name.strip()) is None:
        return False
    yield from read_arguments(stream, OpenCall(stream, name.strip()))
    return True


def read_arguments(stream: Stream, call: OpenCall) -> Steps[None]:
    """Keyword arguments behind the opening parenthesis, and the closing one."""
    call.arguments("{")
    first = True
    while True:
        yield from stream.spaces(" \n\t,")
        if (yield from stream.accept(")")):
            call.arguments("}")
            return
        key, mark = yield from stream.head(("=",), _MAX_NAME_CHARS)
        if not mark:
            return
        call.arguments(f'{"" if first else ", "}"{quoted(key.strip())}": ')
        first = False
        if not (yield from _value(stream, call, 1)):
            return


def _value(stream: Stream, call: OpenCall, depth: int) -> Steps[bool]:
    """One Python literal, passed on as JSON; False if the text ended inside of it."""
    yield from stream.spaces()
    if depth > _MAX_DEPTH:
        return False
    quote = yield from stream.accept('"', "'")
    if quote:
        return (yield from _string(stream, call, quote))
    if (yield from stream.accept("[")):
        return (yield from _series(stream, call, depth, "[]", keyed=False))
    if (yield from stream.accept("(")):
        return (yield from _series(stream, call, depth, "()", keyed=False))
    if (yield from stream.accept("{")):
        return (yield from _series(stream, call, depth, "{}", keyed=True))
    word = (yield from stream.word(",:)]}")).strip()
    call.arguments(_WORDS.get(word, word))
    return bool(word)


def _series(stream: Stream, call: OpenCall, depth: int, braces: str, *, keyed: bool) -> Steps[bool]:
    opening, closing = ("[", "]") if braces == "()" else (braces[0], braces[1])
    call.arguments(opening)
    first = True
    while True:
        yield from stream.spaces(" \n\t,")
        if (yield from stream.accept(braces[1])):
            call.arguments(closing)
            return True
        if stream.ended and not stream.text:
            return False
        if not first:
            call.arguments(", ")
        first = False
        if keyed:
            if not (yield from _value(stream, call, depth + 1)):
                return False
            yield from stream.spaces()
            if not (yield from stream.accept(":")):
                return False
            call.arguments(": ")
        if not (yield from _value(stream, call, depth + 1)):
            return False


def _string(stream: Stream, call: OpenCall, quote: str) -> Steps[bool]:
    call.arguments('"')
    while True:
        mark = yield from stream.until((quote, "\\"), lambda text: call.arguments(quoted(text)))
        if not mark:
            return False
        if mark == quote:
            call.arguments('"')
            return True
        escaped = yield from stream.peek()
        stream.take(1)
        call.arguments(quoted(_ESCAPES.get(escaped, escaped if escaped in "\\'\"" else "\\" + escaped)))

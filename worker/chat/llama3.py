"""Llama 3: calls as bare JSON at the beginning, or behind the Python tag: JSON, `name.call(…)`, or code."""

from __future__ import annotations

from typing import Final

from worker.chat.calls import OpenCall
from worker.chat.content import content_and_calls
from worker.chat.json_calls import JsonCalls
from worker.chat.json_text import quoted
from worker.chat.pythonic import read_arguments
from worker.chat.stream import Steps, Stream
from worker.chat.syntax import OutputSyntax

PYTHON_TAG: Final = "<|python_tag|>"
CODE_TOOLS: Final = ("python", "ipython", "code_interpreter")
"""Tools that take code as it is, as their argument `code`."""

_CALLS: Final = JsonCalls(marks=(PYTHON_TAG,), bare=True)
_METHOD: Final = ".call("


def llama3(stream: Stream, syntax: OutputSyntax) -> Steps[None]:
    """The family's parser."""
    yield from _CALLS.read_start(stream, syntax)
    yield from content_and_calls(stream, syntax, (PYTHON_TAG,), _behind_tag)


def _behind_tag(stream: Stream, syntax: OutputSyntax, mark: str) -> Steps[bool]:
    yield from stream.spaces()
    if (yield from stream.peek()) in {"{", "["} and (yield from _CALLS.read_section(stream, syntax, mark)):
        return True
    stream.give_up()
    stream.attempt()
    yield from stream.spaces()
    starts = tuple(f"{tool.name}{_METHOD}" for tool in syntax.tools)
    if start := (yield from stream.accept(*starts)):
        yield from read_arguments(stream, OpenCall(stream, start.removesuffix(_METHOD)))
        return True
    name = next((name for name in CODE_TOOLS if syntax.tool(name) is not None), "")
    if not name:
        return False
    call = OpenCall(stream, name)
    call.arguments('{"code": "')
    yield from stream.until((), lambda text: call.arguments(quoted(text)))
    call.arguments('"}')
    return True

"""Content, with or without reasoning before it: the part that all families share."""

from __future__ import annotations

from worker.chat.stream import Steps, Stream
from worker.chat.syntax import OutputSyntax


class TrimmedReasoning:
    """Passes reasoning on without the white space around it."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._begun = False
        self._spaces = ""

    def __call__(self, text: str) -> None:
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
        body = text.rstrip()
        if body:
            self._stream.reasoning(self._spaces + body)
            self._spaces = ""
        self._spaces += text[len(body) :]


def read_reasoning(stream: Stream, syntax: OutputSyntax) -> Steps[str]:
    """Read the reasoning that an answer may begin with; returns the mark that ended it, "" if there was none.

    An answer whose prompt did not open the reasoning may begin with the start tag, after white space.
    """
    tags = syntax.reasoning
    if tags is None or not syntax.extracts_reasoning:
        return ""
    if syntax.reasoning_open:
        yield from stream.accept(tags.start)
    else:
        lead = yield from stream.spaces()
        if not (yield from stream.accept(tags.start)):
            stream.content(lead)
            return ""
    legacy = syntax.reasoning_format == "deepseek-legacy"
    if legacy:
        stream.content(tags.start)
    trimmed = TrimmedReasoning(stream)

    def sink(text: str) -> None:
        trimmed(text)
        if legacy:
            stream.content(text)

    end = yield from stream.until(tags.ends, sink)
    if legacy:
        stream.content(end)
    elif end:
        yield from stream.spaces()
    return end


def content_only(stream: Stream, syntax: OutputSyntax) -> Steps[None]:
    """Reasoning, then everything else as it is."""
    yield from read_reasoning(stream, syntax)
    yield from stream.until((), stream.content)

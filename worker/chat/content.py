"""Content and reasoning: the part of an answer that all families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from worker.chat.stream import Sink, Steps, Stream
from worker.chat.syntax import OutputSyntax


class TrimmedSink:
    """Passes text on without the white space before and after it."""

    def __init__(self, sink: Sink, *, begun: bool = False) -> None:
        self._sink = sink
        self._begun = begun
        self._spaces = ""

    def __call__(self, text: str) -> None:
        if not self._begun:
            text = text.lstrip()
            self._begun = bool(text)
        body = text.rstrip()
        if body:
            self._sink(self._spaces + body)
            self._spaces = ""
        self._spaces += text[len(body) :]

    def drop(self) -> None:
        """Forget white space that was held back, and drop what comes before further text."""
        self._spaces, self._begun = "", False

    def flush(self) -> None:
        """Pass on white space that was held back."""
        if self._spaces:
            self._sink(self._spaces)
            self._spaces = ""


class ReasoningSink:
    """Where reasoning goes: out of the content, into it with its tags, or both."""

    def __init__(self, stream: Stream, syntax: OutputSyntax) -> None:
        self._stream = stream
        self._extracts = syntax.reasoning_format != "none"
        self._shows = syntax.reasoning_format in {"none", "deepseek-legacy"}
        self._trimmed = TrimmedSink(stream.reasoning)
        self._opening = ""

    def open(self, tag: str) -> None:
        """The tag of the prompt itself: shown once there is reasoning behind it."""
        self._opening = tag

    def tag(self, text: str) -> None:
        """A tag that the model wrote."""
        if self._shows:
            self._stream.content(text)

    def __call__(self, text: str) -> None:
        if text:
            self.tag(self._opening)
            self._opening = ""
        if self._extracts:
            self._trimmed(text)
        if self._shows:
            self._stream.content(text)


def read_reasoning(stream: Stream, syntax: OutputSyntax, calls: Sequence[str] = ()) -> Steps[str]:
    """Read the reasoning that an answer may begin with.

    An answer whose prompt did not open the reasoning may begin with the start tag, after white space. Reasoning ends
    with one of its end tags or with one of `calls`, the marks of tool calls, which is then returned; "" otherwise.
    """
    tags = syntax.reasoning
    if tags is None:
        return ""
    sink = ReasoningSink(stream, syntax)
    if syntax.reasoning_open:
        opening = syntax.prefix[max(syntax.prefix.rfind(tags.start), 0) :]
        if tags.opening == "text" and not syntax.continues:
            sink(opening)
        elif tags.opening == "tag" and not syntax.continues:
            sink.open(opening or tags.start)
        yield from stream.spaces()
    else:
        lead = yield from stream.spaces()
        if not (yield from stream.accept(tags.start)):
            stream.content(lead)
            return (yield from _stray_end(stream, syntax))
        sink.tag(lead + tags.start)
    end = yield from stream.until((*tags.ends, *calls), sink)
    if end in calls:
        return end
    if end == tags.end:
        sink.tag(end)
    if syntax.reasoning_format == "none":
        return ""
    yield from stream.spaces()
    return ""


def _stray_end(stream: Stream, syntax: OutputSyntax) -> Steps[str]:
    """Models that were told not to think may still write the end tag first."""
    tags = syntax.reasoning
    if tags is not None and syntax.extracts_reasoning and (yield from stream.accept(*tags.ends)):
        yield from stream.spaces()
    return ""


def content_only(stream: Stream, syntax: OutputSyntax) -> Steps[None]:
    """Reasoning, then everything else as it is."""
    yield from read_reasoning(stream, syntax)
    yield from stream.until((), stream.content)


CallReader = Callable[[Stream, OutputSyntax, str], Steps[bool]]
"""Reads a section of calls behind its mark, which is the third argument; False if it was none after all."""


def content_and_calls(
    stream: Stream,
    syntax: OutputSyntax,
    marks: Sequence[str],
    read: CallReader,
    *,
    calls_end_reasoning: bool = False,
    dropped: Sequence[str] = (),
) -> Steps[None]:
    """Reasoning, then content with sections of calls anywhere in it.

    What stands behind a mark and is no call stays content, mark included. White space around calls is dropped, and so
    are the texts `dropped`.
    """
    mark = yield from read_reasoning(stream, syntax, marks if syntax.tools and calls_end_reasoning else ())
    content = TrimmedSink(stream.content, begun=True)
    wanted = marks if syntax.tools else ()
    while True:
        mark = mark or (yield from stream.until((*wanted, *dropped), content))
        if not mark:
            break
        if mark in dropped:
            mark = ""
            continue
        stream.attempt()
        if (yield from read(stream, syntax, mark)):
            stream.commit()
            content.drop()
        else:
            stream.give_up()
            content(mark)
        mark = ""
    content.flush()

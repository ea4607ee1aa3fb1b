"""Families that write the name of a call between marks and its arguments as a JSON object behind it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from worker.chat.calls import OpenCall
from worker.chat.content import content_and_calls
from worker.chat.json_text import read_json
from worker.chat.stream import Steps, Stream
from worker.chat.syntax import OutputSyntax

MAX_NAME_CHARS = 256


@dataclass(frozen=True, slots=True)
class NamedCalls:
    """How a family marks its calls.

    A call is one of `begin`, the name, one of `separators`, the arguments, and perhaps one of `ends`. `sections` are
    marks before a series of calls. `id_mark` comes between name and id. `prefixes` may stand before the name;
    `name_pattern` takes the name out of what stands in its place, all of which is the id if `whole_is_id`.
    """

    begin: tuple[str, ...]
    separators: tuple[str, ...]
    ends: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    id_mark: str = ""
    name_pattern: str = r"(?P<name>.+)"
    whole_is_id: bool = False
    calls_end_reasoning: bool = False
    dropped: tuple[str, ...] = ()

    def read(self, stream: Stream, syntax: OutputSyntax) -> Steps[None]:
        """The family's parser."""
        yield from content_and_calls(
            stream,
            syntax,
            (*self.sections, *self.begin),
            self._section,
            calls_end_reasoning=self.calls_end_reasoning,
            dropped=self.dropped,
        )

    def _section(self, stream: Stream, syntax: OutputSyntax, mark: str) -> Steps[bool]:
        if mark in self.sections:
            yield from stream.spaces()
            if not (yield from stream.accept(*self.begin)):
                return False
        found = False
        while (yield from self._call(stream, syntax)):
            found = True
            stream.attempt()
            yield from stream.spaces()
            if not (yield from stream.accept(*self.begin)):
                if (yield from stream.accept(*self.ends, *self.dropped)):
                    stream.commit()
                else:
                    stream.give_up()
                break
        return found

    def _call(self, stream: Stream, syntax: OutputSyntax) -> Steps[bool]:
        yield from stream.spaces()
        yield from stream.accept(*self.prefixes)
        marks = (*self.separators, self.id_mark) if self.id_mark else self.separators
        head, mark = yield from stream.head(marks, MAX_NAME_CHARS)
        match = re.fullmatch(self.name_pattern, head.strip(), re.DOTALL)
        if not mark or match is None or syntax.tool(match["name"]) is None:
            return False
        call_id = match.string if self.whole_is_id else ""
        if mark == self.id_mark:
            call_id, _ = yield from stream.head(self.separators, MAX_NAME_CHARS)
            call_id = call_id.strip()
        yield from stream.spaces()
        if (yield from stream.peek()) not in {"{", ""}:
            return False
        call = OpenCall(stream, match["name"], call_id)
        if (yield from read_json(stream, call.arguments)):
            yield from self._end(stream)
        return True

    def _end(self, stream: Stream) -> Steps[None]:
        if not self.ends:
            return
        stream.attempt()
        yield from stream.spaces()
        if (yield from stream.accept(*self.ends)):
            stream.commit()
        else:
            stream.give_up()

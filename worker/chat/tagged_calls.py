"""Families that write each argument between tags of its own: values are text, their types the tool's schema knows."""

from __future__ import annotations

import json
from dataclasses import dataclass

from worker.chat.calls import OpenCall
from worker.chat.content import content_and_calls
from worker.chat.json_text import quoted
from worker.chat.stream import Steps, Stream
from worker.chat.syntax import OutputSyntax
from worker.chat.values import ParameterTypes

MAX_HEAD_CHARS = 512
_CDATA, _CDATA_END = "<![CDATA[", "]]>"


@dataclass(frozen=True, slots=True)
class TaggedCalls:
    """How a family marks its calls.

    A section begins with one of `sections` (or at once with `call_begin` where that is in `marks`); `call_begin` comes
    before the name and `name_end` behind it; `call_ends` close a call, `section_ends` a section. A parameter is
    `key_begin`, key, `key_end`, value, and one of `value_ends`.
    `strips_lines` families put one line break on both sides of a value. `value_begin` may come between key and value.
    A value may be wrapped as CDATA where `has_cdata`. Names and keys end at a quote, with attributes behind it, where
    `has_attributes`; `string_attribute` is the one that says whether a value is a string.
    """

    sections: tuple[str, ...]
    call_begin: str
    name_end: tuple[str, ...]
    key_begin: str
    key_end: str
    value_ends: tuple[str, ...]
    call_ends: tuple[str, ...]
    section_ends: tuple[str, ...] = ()
    begins_with_call: bool = False
    strips_lines: bool = False
    string_attribute: str = ""
    value_begin: str = ""
    has_cdata: bool = False
    has_attributes: bool = False
    calls_end_reasoning: bool = False
    dropped: tuple[str, ...] = ()

    def read(self, stream: Stream, syntax: OutputSyntax) -> Steps[None]:
        """The family's parser."""
        starts = tuple(f"{self.call_begin}{tool.name}{self.name_end[0]}" for tool in syntax.tools)
        yield from content_and_calls(
            stream,
            syntax,
            (*self.sections, *(starts if self.begins_with_call else ())),
            self._section,
            calls_end_reasoning=self.calls_end_reasoning,
            dropped=self.dropped,
        )

    def section(self, stream: Stream, syntax: OutputSyntax) -> Steps[bool]:
        """Read the calls behind a section's mark; False if there are none."""
        return (yield from self._section(stream, syntax, self.sections[0]))

    def _section(self, stream: Stream, syntax: OutputSyntax, mark: str) -> Steps[bool]:
        if mark not in self.sections:
            name = mark.removeprefix(self.call_begin).removesuffix(self.name_end[0])
            yield from self._arguments(stream, syntax, name)
            found = True
        else:
            found = yield from self._next_call(stream, syntax)
        while found:
            stream.attempt()
            yield from stream.spaces()
            if (yield from stream.accept(*self.section_ends)):
                stream.commit()
                break
            if not self.call_begin or not (yield from self._next_call(stream, syntax)):
                stream.give_up()
                break
        return found

    def _next_call(self, stream: Stream, syntax: OutputSyntax) -> Steps[bool]:
        yield from stream.spaces()
        if self.call_begin and not (yield from stream.accept(self.call_begin)):
            return False
        head, mark = yield from stream.head(self.name_end, MAX_HEAD_CHARS)
        name = self._bare(head)
        if syntax.tool(name) is None or (not mark and not stream.ended):
            return False
        if mark in {*self.call_ends, self.key_begin}:
            stream.text = mark + stream.text
        yield from self._arguments(stream, syntax, name)
        return True

    def _arguments(self, stream: Stream, syntax: OutputSyntax, name: str) -> Steps[None]:
        tool = syntax.tool(name)
        if tool is None:
            return
        call = OpenCall(stream, name)
        types = ParameterTypes(tool)
        separator = "{"
        while True:
            yield from stream.spaces()
            found = yield from stream.accept(self.key_begin, *self.call_ends)
            if found != self.key_begin:
                break
            head, mark = yield from stream.head((self.key_end,), MAX_HEAD_CHARS)
            if not mark:
                break
            key, is_text = self._key(head, types)
            call.arguments(f"{separator}{json.dumps(key, ensure_ascii=False)}: ")
            separator = ", "
            yield from self._value(stream, call, types, key, is_text)
        if found or not stream.ended:
            call.arguments("{}" if separator == "{" else "}")

    def _key(self, head: str, types: ParameterTypes) -> tuple[str, bool]:
        """The parameter's name, and whether its value is certainly a string."""
        if not self.string_attribute:
            key = self._bare(head)
            return key, types.is_text(key)
        return self._bare(head), f'{self.string_attribute}="true"' in head

    def _bare(self, head: str) -> str:
        return (head.partition('"')[0] if self.has_attributes else head).strip()

    def _value(self, stream: Stream, call: OpenCall, types: ParameterTypes, key: str, is_text: bool) -> Steps[None]:
        if self.strips_lines:
            yield from stream.accept("\n")
        if self.value_begin:
            stream.attempt()
            yield from stream.spaces()
            if (yield from stream.accept(self.value_begin)):
                stream.commit()
            else:
                stream.give_up()
        if self.has_cdata and (yield from stream.accept(_CDATA)):
            yield from self._cdata(stream, call, types, key, is_text)
            return
        ends = (*(f"\n{end}" for end in self.value_ends), *self.value_ends) if self.strips_lines else self.value_ends
        if is_text:
            call.arguments('"')
            if (yield from stream.until(ends, lambda text: call.arguments(quoted(text)))):
                call.arguments('"')
            return
        parts: list[str] = []
        if (yield from stream.until(ends, parts.append)):
            call.arguments(types.as_json(key, "".join(parts)))
        else:
            call.arguments("".join(parts))

    def _cdata(self, stream: Stream, call: OpenCall, types: ParameterTypes, key: str, is_text: bool) -> Steps[None]:
        parts: list[str] = []
        complete = yield from stream.until((_CDATA_END,), parts.append)
        if complete:
            yield from stream.accept(*self.value_ends)
        text = "".join(parts)
        call.arguments(f'"{quoted(text)}"' if is_text else types.as_json(key, text))

"""Families that write a call as a JSON object with the name inside, alone or in a list, behind a mark."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from worker.chat.calls import OpenCall
from worker.chat.content import content_and_calls
from worker.chat.json_text import NOT_JSON, decode, read_json, read_json_string
from worker.chat.stream import Steps, Stream
from worker.chat.syntax import OutputSyntax

NAMES = ("name", "tool_name", "function_name")
ARGUMENTS = ("arguments", "parameters")
IDS = ("id", "tool_call_id", "call_id")


@dataclass(frozen=True, slots=True)
class JsonCalls:
    """How a family marks its calls. A section begins with one of `marks` and may end with one of `ends`.

    `bare` families may begin an answer with a call that has no mark at all. `id_last` families write the id behind the
    arguments, which must then wait for it. With `name_is_key`, a call is `{"name": {arguments}}`.
    """

    marks: tuple[str, ...]
    ends: tuple[str, ...] = ()
    bare: bool = False
    id_last: bool = False
    name_is_key: bool = False
    calls_end_reasoning: bool = False
    dropped: tuple[str, ...] = field(default=())

    def read(self, stream: Stream, syntax: OutputSyntax) -> Steps[None]:
        """The family's parser."""
        yield from self.read_start(stream, syntax)
        yield from content_and_calls(
            stream,
            syntax,
            self.marks,
            self.read_section,
            calls_end_reasoning=self.calls_end_reasoning,
            dropped=self.dropped,
        )

    def read_start(self, stream: Stream, syntax: OutputSyntax) -> Steps[None]:
        """Calls without a mark at the very beginning of an answer, separated by white space, `;` or `,`."""
        while self.bare and syntax.tools:
            stream.attempt()
            yield from stream.spaces(" \n\r\t;,")
            if (yield from stream.peek()) in {"{", "["} and (yield from self.read_section(stream, syntax, "")):
                stream.commit()
                continue
            stream.give_up()
            return

    def read_section(self, stream: Stream, syntax: OutputSyntax, mark: str) -> Steps[bool]:
        """The calls behind a mark; False if there are none."""
        yield from stream.spaces()
        if (yield from stream.accept("[")):
            found = yield from self._list(stream, syntax)
        else:
            found = yield from self._call(stream, syntax)
        if found and self.ends:
            stream.attempt()
            yield from stream.spaces()
            if (yield from stream.accept(*self.ends)):
                stream.commit()
            else:
                stream.give_up()
        return found

    def _list(self, stream: Stream, syntax: OutputSyntax) -> Steps[bool]:
        found = False
        while True:
            yield from stream.spaces(" \n\r\t,")
            if (yield from stream.accept("]")):
                return found
            if not (yield from self._call(stream, syntax)):
                return found
            found = True

    def _call(self, stream: Stream, syntax: OutputSyntax) -> Steps[bool]:
        if not (yield from stream.accept("{")):
            return False
        reader = _ObjectReader(stream, syntax, id_last=self.id_last, name_is_key=self.name_is_key)
        return (yield from reader.run())


class _ObjectReader:
    """Reads the members of one call's object, behind its brace."""

    def __init__(self, stream: Stream, syntax: OutputSyntax, *, id_last: bool, name_is_key: bool) -> None:
        self._stream = stream
        self._syntax = syntax
        self._id_last = id_last
        self._name_is_key = name_is_key
        self._name = ""
        self._id = ""
        self._waiting: list[str] = []
        self._call: OpenCall | None = None
        self._failed = False

    def run(self) -> Steps[bool]:
        complete = yield from self._members()
        if self._failed or (self._call is None and not self._name):
            return self._call is not None
        if complete and self._call is None and not self._waiting:
            self._waiting.append("{}")
        self._open()
        return self._call is not None

    def _members(self) -> Steps[bool]:
        """True when the object was closed."""
        while True:
            yield from self._stream.spaces(" \n\r\t,")
            if (yield from self._stream.accept("}")):
                return True
            key = yield from read_json_string(self._stream)
            yield from self._stream.spaces()
            if key is None or not (yield from self._stream.accept(":")):
                self._failed = not self._stream.ended
                return False
            yield from self._stream.spaces()
            if not (yield from self._member(key)):
                return False

    def _member(self, key: str) -> Steps[bool]:
        if self._name_is_key:
            return self._named(key) and (yield from self._arguments())
        if key in NAMES:
            name = yield from read_json_string(self._stream)
            return self._named(name)
        if key in IDS:
            self._id = (yield from self._scalar()) or self._id
            return True
        if key in ARGUMENTS:
            return (yield from self._arguments())
        if key == "function" and (yield from self._stream.peek()) == "{":
            self._stream.take(1)
            return (yield from self._members())
        if key == "function" and not self._name:
            return self._named((yield from read_json_string(self._stream)))
        return (yield from read_json(self._stream, lambda text: None))

    def _named(self, name: str | None) -> bool:
        if name is None or self._syntax.tool(name) is None:
            self._failed = True
            return False
        self._name = name
        return True

    def _scalar(self) -> Steps[str]:
        parts: list[str] = []
        yield from read_json(self._stream, parts.append)
        value = decode("".join(parts))
        return value if isinstance(value, str) else "" if value is NOT_JSON else json.dumps(value)

    def _arguments(self) -> Steps[bool]:
        opened = yield from self._stream.peek()
        if opened == '"':
            text = yield from read_json_string(self._stream)
            if text is None:
                return False
            self._waiting.append(text or "{}")
            return True
        if opened != "{":
            null = yield from self._stream.accept("null")
            self._failed = not null
            self._waiting.append("{}" if null else "")
            return bool(null)
        if self._name and not self._id_last:
            self._open()
        return (yield from read_json(self._stream, self._pass_on))

    def _pass_on(self, text: str) -> None:
        if self._call is not None:
            self._call.arguments(text)
        else:
            self._waiting.append(text)

    def _open(self) -> None:
        if self._call is None:
            self._call = OpenCall(self._stream, self._name, self._id)
            self._call.arguments("".join(self._waiting))
            self._waiting = []

"""Answers put together from their pieces, and the corpus of published ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol.chat import Tool
from worker.chat.formats import output_parser
from worker.chat.pieces import Content, Reasoning
from worker.chat.syntax import OutputSyntax, ReasoningTags

_CORPUS = Path(__file__).parent / "corpus"


@dataclass
class Call:
    name: str = ""
    id: str = ""
    arguments: str = ""


@dataclass
class Answer:
    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)


def read(syntax: OutputSyntax, fragments: Iterable[str]) -> Answer:
    """What a parser makes of a text that comes in fragments. Checks that names and ids come once, before arguments."""
    parser = output_parser(syntax)
    pieces = [piece for fragment in fragments for piece in parser.feed(fragment)] + parser.finish()
    answer = Answer()
    for piece in pieces:
        if isinstance(piece, Content):
            assert piece.text
            answer.content += piece.text
        elif isinstance(piece, Reasoning):
            assert piece.text
            answer.reasoning += piece.text
        elif piece.name:
            assert piece.index == len(answer.calls)
            assert piece.id
            answer.calls.append(Call(piece.name, piece.id, piece.arguments))
        else:
            assert piece.arguments
            assert not piece.id
            answer.calls[piece.index].arguments += piece.arguments
    return answer


def cuts(text: str, every: int = 1) -> Iterator[tuple[str, ...]]:
    """A text in one, cut once at every place (or every so many), and character by character."""
    yield (text,)
    for position in range(1, len(text), every):
        yield text[:position], text[position:]
    yield tuple(text)


def tool(name: str, parameters: dict[str, Any] | None = None) -> Tool:
    return Tool(name, "", json.dumps(parameters if parameters is not None else {}).encode())


@dataclass(frozen=True)
class Published:
    """One line of the corpus."""

    line: int
    syntax: OutputSyntax
    text: str
    content: str
    reasoning: str
    calls: list[list[str]]


def corpus() -> list[Published]:
    tools = {
        name: tool(entry["name"], entry["parameters"])
        for name, entry in json.loads((_CORPUS / "tools.json").read_text()).items()
    }
    lines = (_CORPUS / "answers.jsonl").read_text().splitlines()
    return [_published(number, json.loads(line), tools) for number, line in enumerate(lines, 1)]


def _published(number: int, entry: dict[str, Any], tools: dict[str, Tool]) -> Published:
    tags = entry.get("tags")
    syntax = OutputSyntax(
        format=entry["format"],
        reasoning=ReasoningTags(tags[0], tuple(tags[1]), tags[2]) if tags else None,
        reasoning_open=entry.get("open", False),
        reasoning_format=entry["reasoning_format"],
        tools=tuple(tools[name] for name in entry.get("tools", ())),
        prefix=entry["prefix"],
        continues=entry.get("continues", False),
    )
    return Published(
        number,
        syntax,
        entry["input"],
        entry.get("content", ""),
        entry.get("reasoning", ""),
        entry.get("calls", []),
    )

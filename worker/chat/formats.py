"""The table of output formats: how each family is recognised by its template, and how its output is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from worker.chat.content import content_only
from worker.chat.pieces import Parser
from worker.chat.stream import Steps, Stream, StreamParser
from worker.chat.syntax import OutputSyntax, ReasoningTags


@dataclass(frozen=True, slots=True)
class Format:
    """One family. `preserved_tokens` are special tokens whose text the parser must see in the output."""

    name: str
    read: Callable[[Stream, OutputSyntax], Steps[None]]
    recognises: Callable[[str], bool]
    reasoning: ReasoningTags | None = None
    preserved_tokens: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()


THINK = ReasoningTags("<think>", ("</think>",))

FORMATS: tuple[Format, ...] = (Format("content", content_only, recognises=lambda source: True),)
"""The first that recognises a template's text is its format."""

_BY_NAME = {entry.name: entry for entry in FORMATS}

_COMMON_TAGS = (
    THINK,
    ReasoningTags("[THINK]", ("[/THINK]",)),
    ReasoningTags("<seed:think>", ("</seed:think>",)),
    ReasoningTags("<|START_THINKING|>", ("<|END_THINKING|>",)),
    ReasoningTags("<|inner_prefix|>", ("<|inner_suffix|>",)),
)


def detect_format(source: str) -> Format:
    """The format of the answers that a template asks for."""
    return next(entry for entry in FORMATS if entry.recognises(source))


def reasoning_tags(entry: Format, source: str) -> ReasoningTags | None:
    """The format's own tags, or the usual ones if the template names them."""
    if entry.reasoning is not None:
        return entry.reasoning
    return next((tags for tags in _COMMON_TAGS if tags.start in source and tags.end in source), None)


def output_parser(syntax: OutputSyntax) -> Parser:
    """A fresh parser for one answer."""
    read = _BY_NAME[syntax.format].read
    return StreamParser(lambda stream: read(stream, syntax))

"""How the output of one request is to be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from protocol.chat import Tool

REASONING_FORMATS = ("none", "auto", "deepseek", "deepseek-legacy")


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """The marks around a model's reasoning. `ends` are all that may end it, the usual one first.

    `opening` says what becomes of a start tag that the prompt ends with: it is shown where reasoning stays in the
    content (`tag`), never shown (`hidden`), or part of the reasoning (`text`).
    """

    start: str
    ends: tuple[str, ...]
    opening: Literal["tag", "hidden", "text"] = "tag"

    @property
    def end(self) -> str:
        return self.ends[0]


@dataclass(frozen=True, slots=True)
class OutputSyntax:
    """Everything a parser must know: the family's format and what the prompt ended with.

    `reasoning_open` says that the prompt ends inside of reasoning. `reasoning_format` is `none` (reasoning stays in the
    content, with its tags), `auto` or `deepseek` (taken out of it), or `deepseek-legacy` (both). `tools` is empty when
    calls are not to be looked for. `prefix` is what the prompt's last message begins with,
    and `continues` says that it holds the beginning of the answer itself.
    """

    format: str
    reasoning: ReasoningTags | None = None
    reasoning_open: bool = False
    reasoning_format: str = "auto"
    tools: tuple[Tool, ...] = ()
    parallel_tool_calls: bool = True
    prefix: str = ""
    continues: bool = False

    @property
    def extracts_reasoning(self) -> bool:
        return self.reasoning is not None and self.reasoning_format != "none"

    def tool(self, name: str) -> Tool | None:
        """The tool of that name, if the request has one."""
        return next((tool for tool in self.tools if tool.name == name), None)

"""One chat template, compiled: rendering, and what its answers look like."""

from __future__ import annotations

import copy
import json
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2

from protocol.chat import ChatMessage, ChatPrompt
from worker.chat.formats import Format, detect_format, reasoning_tags
from worker.chat.syntax import OutputSyntax, ReasoningTags
from worker.prompt.capabilities import TemplateCapabilities, preserve_reasoning, probe_capabilities
from worker.prompt.errors import PromptError
from worker.prompt.limits import MAX_SOURCE_CHARS, RenderLimitExceeded, RenderLimits
from worker.prompt.messages import json_object, message_context, plain_text, tool_context
from worker.prompt.rendered import Rendered, RenderSettings
from worker.prompt.sandbox import ALLOWED_CHANGES, RaisedByTemplate, TemplateEnvironment
from worker.prompt.tool_fallback import FORMAT, with_described_tools
from worker.prompt.tool_responses import gather_tool_responses, wants_gathered_responses

_PROBE_LIMITS = RenderLimits(seconds=1.0, steps=200_000, chars=1 << 20, items=100_000)
"""Of all probes of one template together."""
_TEMPLATE_FAULTS = (
    jinja2.TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What a template that is wrong, or that does not fit the conversation, can raise from inside."""


class CompiledTemplate:
    """One template with its environment. Not shared between threads."""

    def __init__(self, source: str, bos_token: str, eos_token: str) -> None:
        if len(source) > MAX_SOURCE_CHARS:
            raise PromptError(f"the chat template is longer than {MAX_SOURCE_CHARS} characters", "chat_template")
        self.source = source
        self._constants = {"bos_token": bos_token, "eos_token": eos_token, "functions": "", "datetime": "Jan 01 2000"}
        self._environment = TemplateEnvironment()
        try:
            self._template = self._environment.from_string(source)
        except (jinja2.TemplateError, RecursionError, SyntaxError, ValueError, MemoryError) as error:
            raise PromptError(f"the chat template is not valid: {_describe(error)}", "chat_template") from error

    @property
    def capabilities(self) -> TemplateCapabilities:
        if isinstance(self._probed, PromptError):
            raise self._probed
        return self._probed

    @cached_property
    def _probed(self) -> TemplateCapabilities | PromptError:
        self._environment.meter.restart(_PROBE_LIMITS)
        try:
            return probe_capabilities(lambda variables: self._execute(self._constants | variables))
        except RenderLimitExceeded as error:
            return PromptError(f"the chat template failed: {_describe(error)}", "chat_template")

    @cached_property
    def format(self) -> Format:
        return detect_format(self.source)

    @cached_property
    def reasoning(self) -> ReasoningTags | None:
        return reasoning_tags(self.format, self.source)

    def render(self, prompt: ChatPrompt, settings: RenderSettings) -> Rendered:
        messages, continued = _split_continuation(prompt)
        described = self._describes_tools(prompt)
        if described:
            messages = with_described_tools(messages, prompt.tools)
        context = message_context(
            messages, self.capabilities, settings.media_marker, keep_developer="<|channel|>" in self.source
        )
        variables = {"enable_thinking": self.format.thinks} | _variables(prompt, settings)
        variables["messages"] = context.messages
        if wants_gathered_responses(self.format.name, self.source):
            variables["messages"] = gather_tool_responses(context.messages)
        if described:
            del variables["tools"]
        closed, opened = self._both(variables, settings)
        opening = opened[_common_length(closed, opened) :]
        text = opened if prompt.add_generation_prompt and continued is None else closed
        if continued is not None:
            opening = self._continue(opening, continued)
            text = closed + opening
        return Rendered(
            text=text,
            syntax=self._syntax(prompt, opening, FORMAT if described else self.format.name),
            media=context.media,
            stops=self.format.stops,
            preserved_tokens=self._preserved_tokens(),
        )

    def _both(self, variables: dict[str, Any], settings: RenderSettings) -> tuple[str, str]:
        """The conversation without and with what the template puts in front of an answer, the generation prompt."""
        first = copy.deepcopy(variables) if self._changes_values else variables
        return self._render_text(first, False, settings), self._render_text(variables, True, settings)

    @cached_property
    def _changes_values(self) -> bool:
        """Whether the template may change what it is given, so that it must be given copies."""
        return any(f".{name}(" in self.source for name in ALLOWED_CHANGES)

    def _continue(self, opening: str, message: ChatMessage) -> str:
        """The generation prompt with the beginning of the answer that is to go on."""
        content = plain_text(message.content)
        if self.reasoning is None:
            return opening + self.format.content_start + content
        opening = opening.partition(self.reasoning.start)[0]
        start, end = self._reasoning_frame
        if message.reasoning_content and not content:
            return f"{opening}{start}{message.reasoning_content}"
        return f"{opening}{start}{message.reasoning_content}{end}{self.format.content_start}{content}"

    @cached_property
    def _reasoning_frame(self) -> tuple[str, str]:
        """What the template writes before and behind the reasoning of an answer, white space included."""
        tags = self.reasoning
        if tags is None:
            return "", ""
        thoughts, content = "Thoughts-of-the-probe", "Content-of-the-probe"
        answer = {"role": "assistant", "content": content, "reasoning_content": thoughts}
        messages = [{"role": "user", "content": "Question"}, answer]
        self._environment.meter.restart(_PROBE_LIMITS)
        try:
            text = self._execute(self._constants | preserve_reasoning(True) | {"messages": messages})
        except _TEMPLATE_FAULTS:
            return tags.start, tags.end
        before, found, behind = text.partition(thoughts)
        begin, stop = before.rfind(tags.start), behind.find(content)
        if not found or begin < 0 or tags.end not in behind[: max(stop, 0)]:
            return tags.start, tags.end
        return before[begin:], behind[:stop].removesuffix(self.format.content_start)

    def _describes_tools(self, prompt: ChatPrompt) -> bool:
        """Whether tools must be described in words because the template knows neither tools nor calls."""
        wanted = bool(prompt.tools) and prompt.tool_choice != "none"
        return wanted and not self.capabilities.tools and not self.capabilities.tool_calls

    def _syntax(self, prompt: ChatPrompt, opening: str, output_format: str) -> OutputSyntax:
        tags = self.reasoning
        begins = opening.rfind(tags.start) if tags is not None else -1
        is_open = begins >= 0 and tags is not None and not any(end in opening[begins:] for end in tags.ends)
        return OutputSyntax(
            format=output_format,
            reasoning=tags,
            reasoning_open=is_open,
            reasoning_format=prompt.reasoning_format,
            tools=prompt.tools if prompt.tool_choice != "none" else (),
            parallel_tool_calls=prompt.parallel_tool_calls,
            prefix=opening,
            continues=prompt.continue_final_message,
        )

    def _preserved_tokens(self) -> tuple[str, ...]:
        tags = self.reasoning
        marks = (tags.start, *tags.ends) if tags is not None else ()
        return tuple(dict.fromkeys((*self.format.preserved_tokens, *marks)))

    def _render_text(self, variables: dict[str, Any], generation_prompt: bool, settings: RenderSettings) -> str:
        if generation_prompt:
            variables = variables | {"add_generation_prompt": True}
        try:
            self._environment.meter.restart(settings.limits)
            text = self._execute(variables)
        except RaisedByTemplate as error:
            raise PromptError(f"the chat template refuses this conversation: {error.message}", "messages") from error
        except _TEMPLATE_FAULTS as error:
            raise PromptError(f"the chat template failed: {_describe(error)}", "messages") from error
        if settings.add_bos and settings.bos:
            text = text.removeprefix(settings.bos)
        if settings.add_eos and settings.eos:
            text = text.removesuffix(settings.eos)
        return text

    def _execute(self, variables: dict[str, Any]) -> str:
        """Render piece by piece, so that the output is bounded too."""
        meter = self._environment.meter
        pieces: list[str] = []
        size = 0
        for piece in self._template.generate(variables):
            size += len(piece)
            meter.charge(size)
            pieces.append(piece)
        return "".join(pieces)


def _split_continuation(prompt: ChatPrompt) -> tuple[tuple[ChatMessage, ...], ChatMessage | None]:
    """The messages to render, and the last one if it is to be continued."""
    if not prompt.messages:
        raise PromptError("messages must not be empty", "messages")
    if not prompt.continue_final_message:
        return prompt.messages, None
    last = prompt.messages[-1]
    if last.role != "assistant":
        raise PromptError("only an assistant message can be continued", "continue_final_message")
    if last.tool_calls:
        raise PromptError("a message with tool calls cannot be continued", "continue_final_message")
    return prompt.messages[:-1], last


def _variables(prompt: ChatPrompt, settings: RenderSettings) -> dict[str, Any]:
    now = datetime.now()
    variables: dict[str, Any] = {
        "bos_token": settings.bos,
        "eos_token": settings.eos,
        "preserve_reasoning": True,
        "datetime": now.strftime("%b %d %Y"),
        "date_string": now.strftime("%d %b %Y"),
        "functions": "",
    }
    variables |= json_object(prompt.template_kwargs_json, "chat_template_kwargs")
    if prompt.enable_thinking is not None:
        variables["enable_thinking"] = prompt.enable_thinking
    if not isinstance(variables.get("enable_thinking", True), bool):
        raise PromptError("enable_thinking must be true or false", "chat_template_kwargs")
    if isinstance(variables.get("preserve_reasoning"), bool):
        variables |= preserve_reasoning(variables["preserve_reasoning"])
    if isinstance(variables.get("reasoning_effort"), str):
        variables["reasoning_strength"] = variables["reasoning_effort"]
    if prompt.tools:
        variables["tools"] = tool_context(prompt.tools)
        variables["functions"] = json.dumps(variables["tools"], indent=4, ensure_ascii=False)
    return variables


def _common_length(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    if other.startswith(one):
        return len(one)
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[:middle] == other[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _describe(error: BaseException) -> str:
    line = getattr(error, "lineno", None)
    message = str(error) or type(error).__name__
    return f"{message} (line {line})" if line else message

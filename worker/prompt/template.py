"""A model's chat template: from a conversation to a prompt, and to what is needed to read the answer."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2

from protocol.chat import AudioPart, ChatMessage, ChatPrompt, ImagePart
from worker.chat.formats import Format, detect_format, reasoning_tags
from worker.chat.syntax import REASONING_FORMATS, OutputSyntax, ReasoningTags
from worker.prompt.capabilities import TemplateCapabilities, preserve_reasoning, probe_capabilities
from worker.prompt.errors import PromptError
from worker.prompt.limits import MAX_SOURCE_CHARS, RenderLimitExceeded, RenderLimits
from worker.prompt.messages import json_object, message_context, plain_text, tool_context
from worker.prompt.sandbox import RaisedByTemplate, TemplateEnvironment
from worker.prompt.tool_fallback import FORMAT, with_described_tools

CHATML = """\
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}"""
"""Used when a file has no template of its own."""

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


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt and how to read what follows it.

    `media` belong to the media markers in `text`, in order. `stops` are further stop strings of the format.
    `preserved_tokens` are special tokens whose text must appear in the output for the parser to see.
    """

    text: str
    syntax: OutputSyntax
    media: tuple[ImagePart | AudioPart, ...] = ()
    stops: tuple[str, ...] = ()
    preserved_tokens: tuple[str, ...] = ()


class ChatTemplate:
    """The templates of one model, compiled once; rendering is serialised.

    `tool_use_source` replaces the main template for requests with tools, where a model has one. `add_bos` and `add_eos`
    say that the tokenizer adds these tokens by itself, so that the prompt must not begin or end with their text.
    `media_marker` is the text that stands for an image or a sound.

    Raises PromptError if a template is not valid.
    """

    def __init__(
        self,
        source: str,
        bos_token: str,
        eos_token: str,
        tool_use_source: str = "",
        *,
        add_bos: bool = False,
        add_eos: bool = False,
        media_marker: str = "<__media__>",
        limits: RenderLimits | None = None,
    ) -> None:
        if not source or source == "chatml":
            source = tool_use_source or CHATML
        self._bos, self._eos = bos_token, eos_token
        self._add_bos, self._add_eos = add_bos, add_eos
        self._media_marker = media_marker
        self._limits = limits or RenderLimits()
        self._main = _Compiled(source, bos_token, eos_token)
        self._tool_use = _Compiled(tool_use_source, bos_token, eos_token) if tool_use_source else None
        self._lock = threading.Lock()

    @property
    def source(self) -> str:
        return self._main.source

    @property
    def capabilities(self) -> TemplateCapabilities:
        """What the template can express; of the one for tools, where there is one."""
        with self._lock:
            return (self._tool_use or self._main).capabilities

    def render(self, prompt: ChatPrompt) -> Rendered:
        """Raises PromptError for a conversation that the template refuses or that takes too long to render."""
        if prompt.reasoning_format not in REASONING_FORMATS:
            raise PromptError(f"unknown reasoning_format {prompt.reasoning_format!r}", "reasoning_format")
        if prompt.chat_template:
            return _Compiled(prompt.chat_template, self._bos, self._eos).render(prompt, self._settings())
        with self._lock:
            template = self._tool_use if prompt.tools and self._tool_use else self._main
            return template.render(prompt, self._settings())

    def _settings(self) -> _RenderSettings:
        return _RenderSettings(self._bos, self._eos, self._add_bos, self._add_eos, self._media_marker, self._limits)


@dataclass(frozen=True, slots=True)
class _RenderSettings:
    bos: str
    eos: str
    add_bos: bool
    add_eos: bool
    media_marker: str
    limits: RenderLimits


class _Compiled:
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

    def render(self, prompt: ChatPrompt, settings: _RenderSettings) -> Rendered:
        messages, continued = _split_continuation(prompt)
        described = self._describes_tools(prompt)
        if described:
            messages = with_described_tools(messages, prompt.tools)
        context = message_context(
            messages, self.capabilities, settings.media_marker, keep_developer="<|channel|>" in self.source
        )
        variables = {"enable_thinking": self.format.thinks} | _variables(prompt, settings)
        variables["messages"] = context.messages
        if described:
            del variables["tools"]
        text = self._render_text(variables, prompt.add_generation_prompt and continued is None, settings)
        opening = self._opening(variables, settings)
        if continued is not None:
            opening = self._continue(opening, continued)
            text += opening
        return Rendered(
            text=text,
            syntax=self._syntax(prompt, opening, FORMAT if described else self.format.name),
            media=context.media,
            stops=self.format.stops,
            preserved_tokens=self._preserved_tokens(),
        )

    def _opening(self, variables: dict[str, Any], settings: _RenderSettings) -> str:
        """What the template puts in front of an answer: the generation prompt."""
        without = self._render_text(variables, False, settings)
        with_prompt = self._render_text(variables, True, settings)
        common = next(
            (i for i, (a, b) in enumerate(zip(without, with_prompt, strict=False)) if a != b),
            min(len(without), len(with_prompt)),
        )
        return with_prompt[common:]

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

    def _render_text(self, variables: dict[str, Any], generation_prompt: bool, settings: _RenderSettings) -> str:
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


def _variables(prompt: ChatPrompt, settings: _RenderSettings) -> dict[str, Any]:
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


def _describe(error: BaseException) -> str:
    line = getattr(error, "lineno", None)
    message = str(error) or type(error).__name__
    return f"{message} (line {line})" if line else message

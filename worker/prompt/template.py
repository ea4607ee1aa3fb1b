"""A model's chat template: from a conversation to a prompt, and to what is needed to read the answer."""

from __future__ import annotations

import threading
from collections import OrderedDict

from protocol.chat import MEDIA_MARKER, ChatPrompt
from worker.chat.syntax import REASONING_FORMATS
from worker.prompt.capabilities import TemplateCapabilities
from worker.prompt.compiled import CompiledTemplate
from worker.prompt.errors import PromptError
from worker.prompt.limits import RenderLimits
from worker.prompt.rendered import Rendered as Rendered
from worker.prompt.rendered import RenderSettings

CHATML = """\
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {{- '<|im_start|>assistant\\n' -}}
{%- endif -%}"""
"""Used when a file has no template of its own."""

_KEPT_TEMPLATES = 4


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
        media_marker: str = MEDIA_MARKER,
        limits: RenderLimits | None = None,
    ) -> None:
        if not source or source == "chatml":
            source = tool_use_source or CHATML
        self._bos, self._eos = bos_token, eos_token
        self._add_bos, self._add_eos = add_bos, add_eos
        self._media_marker = media_marker
        self._limits = limits or RenderLimits()
        self._main = CompiledTemplate(source, bos_token, eos_token)
        self._tool_use = CompiledTemplate(tool_use_source, bos_token, eos_token) if tool_use_source else None
        self._others: OrderedDict[str, CompiledTemplate] = OrderedDict()
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
        with self._lock:
            if prompt.chat_template:
                template = self._requested(prompt.chat_template)
            else:
                template = self._tool_use if prompt.tools and self._tool_use else self._main
            return template.render(prompt, self._settings())

    def _requested(self, source: str) -> CompiledTemplate:
        """A template that requests bring with them; the last few are kept."""
        template = self._others.get(source)
        if template is None:
            template = self._others[source] = CompiledTemplate(source, self._bos, self._eos)
            if len(self._others) > _KEPT_TEMPLATES:
                self._others.popitem(last=False)
        self._others.move_to_end(source)
        return template

    def _settings(self) -> RenderSettings:
        return RenderSettings(self._bos, self._eos, self._add_bos, self._add_eos, self._media_marker, self._limits)

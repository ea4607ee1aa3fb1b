"""What probes find out about a template."""

from __future__ import annotations

import pytest

from tests.worker.prompt import test_template as sources
from worker.prompt.capabilities import TemplateCapabilities
from worker.prompt.template import ChatTemplate

PARALLEL = (
    "{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{{ m.content }}"
    "{% endfor %}"
)
CHUNKS = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{% if p.type == 'thinking' %}({{ p.thinking }}){% else %}{{ p.text }}{% endif %}{% endfor %}{% endif %}"
    "{% endfor %}"
)
EFFORT = "Effort: {{ reasoning_effort }}{{ messages[0].content }}"
KEPT = (
    "{% for m in messages %}{{ m.content }}{% if preserve_thinking %}{{ m.reasoning_content }}{% endif %}{% endfor %}"
)


def _of(source: str) -> TemplateCapabilities:
    return ChatTemplate(source, "<s>", "</s>").capabilities


def test_kinds_of_content() -> None:
    found = {
        name: (_of(source).string_content, _of(source).typed_content)
        for name, source in {"plain": sources.PLAIN, "typed": sources.TYPED, "either": sources.EITHER}.items()
    }
    assert found == {"plain": (True, False), "typed": (False, True), "either": (True, True)}


def test_a_system_role() -> None:
    assert _of(sources.PLAIN).system_role
    assert not _of(sources.NO_SYSTEM).system_role


def test_tools_and_arguments() -> None:
    assert _of(sources.OBJECT_ARGUMENTS).object_arguments
    assert not _of(sources.STRING_ARGUMENTS).object_arguments
    assert _of(sources.STRING_ARGUMENTS).tool_calls
    assert _of(sources.OBJECT_ARGUMENTS).tools
    assert not _of(sources.PLAIN).tool_calls
    assert _of(PARALLEL).parallel_tool_calls
    assert not _of(sources.PLAIN).parallel_tool_calls


def test_reasoning() -> None:
    assert _of(sources.THINKING).thinking_switch
    assert not _of(sources.PLAIN).thinking_switch
    assert _of(sources.THINKING).reasoning_form == "reasoning_content"
    assert _of("{% for m in messages %}{{ m.thinking }}{{ m.content }}{% endfor %}").reasoning_form == "thinking"
    assert _of(CHUNKS).reasoning_form == "chunks"
    assert _of(EFFORT).reasoning_effort
    assert not _of(sources.PLAIN).reasoning_effort
    assert _of(KEPT).preserved_reasoning
    assert not _of(sources.PLAIN).preserved_reasoning


@pytest.mark.parametrize(
    "source", ["", "{{ raise_exception('never') }}", "{{ 1 / 0 }}", "{{ messages.nothing.at.all }}"]
)
def test_a_template_that_always_fails_is_no_error_yet(source: str) -> None:
    assert _of(source).string_content

"""Templates that published models rely on work; templates that mean harm are stopped."""

from __future__ import annotations

import contextlib
import time
from datetime import datetime

import pytest

from protocol.chat import ChatMessage, ChatPrompt
from worker.prompt.errors import PromptError
from worker.prompt.limits import MAX_SOURCE_CHARS, RenderLimits
from worker.prompt.sandbox import TemplateEnvironment
from worker.prompt.template import ChatTemplate

HELLO = ChatPrompt((ChatMessage("user", "Hello"),))


def _render(source: str, limits: RenderLimits | None = None) -> str:
    return ChatTemplate(source, "<s>", "</s>", limits=limits).render(HELLO).text


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for m in messages %}{{ m['role'] }}:{{ m.content }}{% endfor %}", "user:Hello"),
        ("{{ {'b': 'ü', 'a': [1, none, true]} | tojson }}", '{"b": "ü", "a": [1, null, true]}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{{ {'b': 1, 'a': 2} | tojson(separators=(',', ':'), sort_keys=true) }}", '{"a":2,"b":1}'),
        ("{{ 'ü<' | tojson(ensure_ascii=true) }}", '"\\u00fc<"'),
        ("{{ messages | map(attribute='role') | tojson }}", '["user"]'),
        (
            "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}"
            "{{ i }}{% endfor %}",
            "013",
        ),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
        ("{% set l = [] %}{% set _ = l.append(3) %}{{ l | length }}{{ _ is none }}", "1True"),
        ("{% generation %}x{% endgeneration %}", "x"),
        ("{% macro f(a, b='!') %}{{ a ~ b }}{% endmacro %}{{ f('x') }}{{ f('y', b='?') }}", "x!y?"),
        ("  {% if true %}\n  x\n  {% endif %}\ny", "  x\ny"),
        ("{{ '<b>' | safe + 'a & b' }}", "<b>a & b"),
        ("{{ 'a,b'.split(',')[-1].strip().upper() }}{{ '%s-%d' % ('x', 3) }}{{ '{}'.format(7) }}", "Bx-37"),
        ("{{ messages[0].get('name', 'none') }}{{ messages[0].items() | list | length }}", "none2"),
        ("{{ bos_token }}{{ undefined_thing }}{{ add_generation_prompt }}", "<s>True"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ ('a', 'b') | join('-') }}{{ 'aXb' | replace('X', '_') }}{{ 'l1\nl2' | indent(2) }}", "a-ba_bl1\n  l2"),
        ("{{ dict(a=1).update({'b': 2}) }}{{ [1, 2, 3][1:] }}{{ 7 // 2 }}{{ 2 ** 3 }}", "None[2, 3]38"),
    ],
)
def test_published_constructs_work(source: str, expected: str) -> None:
    assert _render(source) == expected


def test_strftime_now_is_local_time() -> None:
    environment = TemplateEnvironment(now=lambda: datetime(2026, 3, 4, 5, 6))
    assert environment.from_string("{{ strftime_now('%d %b %Y') }}").render() == "04 Mar 2026"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__class__.__base__ }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ (messages | attr('__class__')).mro() }}",
        "{{ '{0.__class__.__mro__}'.format(1) }}",
        "{{ '{x.__class__}'.format_map({'x': 1}) }}",
        "{{ strftime_now.__self__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ messages.clear() }}",
        "{{ messages[0].popitem() }}",
        "{{ 'x'.translate({}) }}",
    ],
)
def test_nothing_outside_is_reached(source: str) -> None:
    text = ""
    with contextlib.suppress(PromptError):
        text = _render(source)
    assert "class" not in text
    assert "/" not in text


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) if (range(99999) | list | length == 0) %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for a in range(9) recursive %}{{ loop(range(9)) }}{% endfor %}",
        "{% set ns = namespace(x='12345678') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='12345678') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for i in range(60) %}{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}{% endfor %}",
        "{% set l = [1] %}{% for i in range(60) %}{% set _ = l.extend(l) %}{% endfor %}",
        "{% for i in range(100000) %}{{ 'x' * 10000 }}{% endfor %}",
        "{{ 'x' * 9999999999 }}",
        "{{ [1] * 9999999999 }}",
        "{{ 10 ** 10 ** 10 }}",
        "{{ 9999999999999999999999 * 9 ** 80 }}",
        "{{ 'x' | center(9999999999) }}",
        "{{ 'x'.ljust(9999999999) }}",
        "{{ 'x'.zfill(9999999999) }}",
        "{{ '\\t'.expandtabs(9999999999) }}",
        "{{ ('a' * 1000000).replace('', 'b' * 1000000) }}",
        "{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}",
        "{{ range(100000) | join('x' * 100000) }}",
        "{{ ('x' * 100000).join(range(100000) | map('string') | list) }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ strftime_now('%999999999d') }}",
        "{{ {'a': 1} | tojson(indent=99999999) }}",
        "{{ 'a' | indent(999999999) }}",
        "{{ range(9) | batch(999999999, 'x') | list }}",
        "{{ range(9) | slice(999999999) | list }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ lipsum(n=100000000) }}",
    ],
)
def test_what_would_not_end_or_not_fit_is_stopped(source: str) -> None:
    started = time.process_time()
    with pytest.raises(PromptError):
        _render(source, RenderLimits(seconds=1.0))
    assert time.process_time() - started < 3


def test_a_template_that_was_stopped_does_not_harm_the_next_rendering() -> None:
    template = ChatTemplate("{% for i in range(n) %}x{% endfor %}", "", "", limits=RenderLimits(steps=100))
    with pytest.raises(PromptError, match="steps"):
        template.render(ChatPrompt(HELLO.messages, template_kwargs_json=b'{"n": 1000}'))
    assert template.render(ChatPrompt(HELLO.messages, template_kwargs_json=b'{"n": 3}')).text == "xxx"


@pytest.mark.parametrize("source", ["{% if", "{{ x | no_such_filter }}", "{% unknown %}", "x" * (MAX_SOURCE_CHARS + 1)])
def test_what_is_no_template_is_refused_with_a_reason(source: str) -> None:
    with pytest.raises(PromptError) as refused:
        ChatTemplate(source, "", "")
    assert refused.value.error.param == "chat_template"
    assert refused.value.error.message


def test_what_a_template_says_itself_reaches_the_user() -> None:
    with pytest.raises(PromptError, match="only users and assistants"):
        _render("{{ raise_exception('only users and assistants') }}")

"""Published answers of every family are taken apart as published, wherever the stream is cut."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest

from tests.worker.chat.answers import Answer, Published, corpus, cuts, read
from worker.chat.formats import FORMATS

_BY_FORMAT: dict[str, list[Published]] = defaultdict(list)
for _entry in corpus():
    _BY_FORMAT[_entry.syntax.format].append(_entry)


def _as_json(text: str) -> object:
    """Arguments as values; text that was cut off is only compared as "not whole"."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _facts(answer: Answer) -> tuple[str, str, list[tuple[str, object]]]:
    calls = [(call.name, _as_json(call.arguments)) for call in answer.calls]
    return answer.content.strip(), answer.reasoning.strip(), calls


@pytest.mark.parametrize("name", sorted(_BY_FORMAT))
def test_answers_are_taken_apart_as_published(name: str) -> None:
    for entry in _BY_FORMAT[name]:
        answer = read(entry.syntax, (entry.text,))
        expected = [(call[0], _as_json(call[1])) for call in entry.calls]
        where = f"line {entry.line}: {entry.text!r}"
        assert _facts(answer) == (entry.content.strip(), entry.reasoning.strip(), expected), where
        for found, call in zip(answer.calls, entry.calls, strict=True):
            assert len(call) < 3 or found.id == call[2], where


def _check_cuts(name: str, cuts_per_text: int) -> None:
    for entry in _BY_FORMAT[name]:
        whole = read(entry.syntax, (entry.text,))
        texts = [(call.name, call.arguments) for call in whole.calls]
        for fragments in cuts(entry.text, max(1, len(entry.text) // cuts_per_text)):
            answer = read(entry.syntax, fragments)
            where = f"line {entry.line}, cut after {fragments[0]!r}"
            assert (answer.content, answer.reasoning) == (whole.content, whole.reasoning), where
            assert [(call.name, call.arguments) for call in answer.calls] == texts, where


@pytest.mark.parametrize("name", sorted(_BY_FORMAT))
def test_a_cut_changes_nothing(name: str) -> None:
    _check_cuts(name, cuts_per_text=24)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(_BY_FORMAT))
def test_a_cut_anywhere_changes_nothing(name: str) -> None:
    _check_cuts(name, cuts_per_text=1_000_000)


def test_nearly_every_format_has_published_answers() -> None:
    without = {entry.name for entry in FORMATS} - set(_BY_FORMAT)
    assert without <= {"granite", "phi-4", "generic", "tool-calls-list"}

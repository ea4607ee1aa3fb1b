"""Masks over real vocabularies: special tokens, tokens of several bytes, tokenizers that add a space."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests import factory
from tests.factory.engine import Opened, opened
from tests.factory.vocabulary import Vocabulary
from worker.constraint import ConstraintCompiler, TokenTable, ban

pytestmark = pytest.mark.model

SCHEMA = b'{"type": "object", "properties": {"the world": {"type": "string"}, "n": {"type": "integer"}}, "required": ["the world", "n"], "additionalProperties": false}'  # noqa: E501


def _table(engine: Opened, vocabulary: Vocabulary, markers: frozenset[bytes] = frozenset()) -> TokenTable:
    def tokenize(text: str) -> list[int]:
        tokens = engine.tokenize(text)
        return tokens[1:] if vocabulary.add_bos else tokens

    control = [token for token, kind in enumerate(vocabulary.kinds) if kind.name in {"CONTROL", "UNKNOWN"}]
    pieces = [engine.piece(token, special=True) for token in range(len(vocabulary))]
    return TokenTable(pieces, control, [vocabulary.eos], tokenize, markers)


@pytest.mark.parametrize("make", [factory.sentence_piece_vocabulary, factory.byte_pair_vocabulary])
def test_tokens_spell_what_the_schema_allows(tmp_path: Path, make: Callable[[], Vocabulary]) -> None:
    vocabulary = make()
    with opened(factory.language_model(tmp_path / "m.gguf", vocabulary=vocabulary)) as engine:
        table = _table(engine, vocabulary)
        compiler = ConstraintCompiler(table)
        choose = random.Random(1)
        text = b""
        matcher = compiler.json_schema(SCHEMA)
        while not matcher.is_stopped() and len(text) < 2000:
            logits = np.zeros(len(vocabulary), np.float32)
            mask = matcher.mask()
            assert mask is not None
            ban(logits, mask)
            tokens = [int(token) for token in np.isfinite(logits).nonzero()[0]]
            assert not set(table.control).intersection(tokens) - {vocabulary.eos}
            quotes = [token for token in tokens if table.pieces[token] == b'"']
            token = quotes[0] if quotes and choose.random() < 0.3 else choose.choice(tokens)
            if token == vocabulary.eos:
                break
            matcher.accept(token)
            text += table.pieces[token]
        assert text.startswith(b"{")
        assert b'"the world"' in text


def test_a_marker_counts_as_text_and_other_control_tokens_do_not(tmp_path: Path) -> None:
    vocabulary = factory.byte_pair_vocabulary(control_tokens=("<|im_end|>", "<tool_call>"))
    with opened(factory.language_model(tmp_path / "m.gguf", vocabulary=vocabulary)) as engine:
        marker = vocabulary.tokens.index(b"<tool_call>")
        for markers, expected in ((frozenset({b"<tool_call>"}), True), (frozenset[bytes](), False)):
            compiler = ConstraintCompiler(_table(engine, vocabulary, markers))
            mask = compiler.lark('start: "<tool_call>" /[0-9]+/').mask()
            assert mask is not None
            assert bool((int(mask[marker >> 5]) >> (marker & 31)) & 1) is expected


def test_ban_leaves_only_what_is_allowed() -> None:
    logits = np.arange(70, dtype=np.float32)
    mask = np.zeros(3, np.uint32)
    mask[0], mask[2] = 1 << 5, 1 << 1
    ban(logits, mask)
    assert list(np.isfinite(logits).nonzero()[0]) == [5, 65]
    assert logits[65] == 65

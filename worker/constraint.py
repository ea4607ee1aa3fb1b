"""Structured output: JSON Schemas and forced tool calls as masks over the vocabulary.

A compiler is built once per model, away from the decode thread; it makes one matcher per sequence. The decode thread
asks the matcher for a mask before it samples and tells it the token afterwards: tens of microseconds each.
"""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from worker.schema_rules import ConstraintError, guided, parse_schema

Mask = NDArray[np.uint32]
"""One bit per token, set for those that may come next; bit i of word w is token 32 w + i."""

_LISTING = re.compile(r"^\s*\d+ \| ", re.MULTILINE)
_CACHED_GRAMMARS = 64


@dataclass(frozen=True, slots=True)
class TokenTable:
    """What the masks must know of a vocabulary.

    `pieces` are the bytes of each token, special ones too. `control` are tokens that are no text; those named in
    `markers` (their bytes) count as text all the same, because calls are marked with them. `tokenize` gives the
    tokens of a text without anything added; it may be called from any thread.
    """

    pieces: Sequence[bytes]
    control: Sequence[int]
    end_tokens: Sequence[int]
    tokenize: Callable[[str], list[int]]
    markers: frozenset[bytes] = frozenset()


class Matcher:
    """The state of one constrained sequence. Used by one thread at a time."""

    def __init__(self, matcher: LLMatcher, tokenizer: LLTokenizer, n_vocab: int) -> None:
        self._matcher = matcher
        self._tokenizer = tokenizer
        self._bits: Mask = np.zeros((n_vocab + 31) // 32, np.uint32)

    def mask(self) -> Mask | None:
        """The tokens that may come next, None for all. The array is overwritten by the next call.

        Raises ConstraintError when the constraint has become too complex to follow.
        """
        self._matcher.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        self._check()
        return self._bits

    def accept(self, token: int) -> None:
        """Go on behind a token that was sampled. Raises ConstraintError if the mask did not allow it."""
        if not self._matcher.consume_token(token):
            self._check()

    def accept_text(self, text: bytes) -> bool:
        """Go on behind a text, however it was written in tokens; False if the constraint does not allow it."""
        tokens = self._tokenizer.tokenize_bytes(text)
        return bool(self._matcher.try_consume_tokens(tokens) == len(tokens))

    def is_accepting(self) -> bool:
        """Whether the output so far is complete."""
        return self._matcher.is_accepting()

    def is_stopped(self) -> bool:
        """Whether nothing but an end token may follow."""
        return self._matcher.is_stopped()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise ConstraintError(f"the output can no longer be constrained: {_one_line(self._matcher.get_error())}")


class ReasoningGate:
    """A matcher that holds back until the model's reasoning has ended.

    `is_open` says that the prompt opened the reasoning; otherwise `start_token`, if there is one, may open it as the
    first token. Any of `ends` closes it. White space behind it belongs to neither.
    """

    def __init__(
        self, inner: Matcher, pieces: Sequence[bytes], ends: Sequence[bytes], is_open: bool, start_token: int = -1
    ) -> None:
        self._inner = inner
        self._pieces = pieces
        self._ends = tuple(ends)
        self._reasoning = is_open
        self._undecided = not is_open and start_token >= 0
        self._start_token = start_token
        self._tail = b""
        self._keep = max((len(end) for end in ends), default=1) - 1

    def mask(self) -> Mask | None:
        if self._reasoning:
            return None
        bits = self._inner.mask()
        if self._undecided and bits is not None:
            bits[self._start_token >> 5] |= np.uint32(1 << (self._start_token & 31))
        return bits

    def accept(self, token: int) -> None:
        if self._undecided:
            self._undecided = False
            if token == self._start_token:
                self._reasoning = True
                return
        if not self._reasoning:
            self._inner.accept(token)
            return
        text = self._tail + self._pieces[token]
        if any(end in text for end in self._ends):
            self._reasoning = False
        else:
            self._tail = text[-self._keep :] if self._keep else b""

    def is_accepting(self) -> bool:
        return not self._reasoning and self._inner.is_accepting()

    def is_stopped(self) -> bool:
        return not self._reasoning and self._inner.is_stopped()


class _Tokenizer:
    """A vocabulary in the shape that llguidance asks for."""

    def __init__(self, table: TokenTable) -> None:
        self._table = table
        self.tokens = list(table.pieces)
        self.eos_token_id = table.end_tokens[0]
        self.bos_token_id: int | None = None
        self.special_token_ids = [token for token in table.control if table.pieces[token] not in table.markers]
        self._special = frozenset(self.special_token_ids)

    def __call__(self, text: bytes) -> list[int]:
        """Tokens whose bytes are exactly `text`, as the model would write it; none if there are no such tokens.

        Some tokenizers put a space in front of every text: a line break before it takes that space.
        """
        for lead in ("", "\n"):
            tokens = self._table.tokenize(lead + text.decode())
            if lead:
                tokens = self._behind_lead(tokens)
            if b"".join(self.tokens[token] for token in tokens) == text and self._special.isdisjoint(tokens):
                return tokens
        return []

    def _behind_lead(self, tokens: list[int]) -> list[int]:
        for position, token in enumerate(tokens):
            if self.tokens[token].endswith(b"\n"):
                return tokens[position + 1 :]
        return tokens


class ConstraintCompiler:
    """Makes matchers for one vocabulary. Safe to use from several threads.

    Building one reads the whole vocabulary: about 0.2 s for 50,000 tokens.
    """

    def __init__(self, table: TokenTable) -> None:
        if not table.end_tokens:
            raise ConstraintError("the vocabulary has no end token, so that no output could be complete")
        self._pieces = table.pieces
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(_Tokenizer(table)), n_vocab=len(table.pieces), eos_token=list(table.end_tokens)
        )
        self._limits = LLParserLimits(verbose_errors=False)
        self._compiled: OrderedDict[str, LLMatcher] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def pieces(self) -> Sequence[bytes]:
        """The bytes of each token."""
        return self._pieces

    def json_schema(self, schema_json: bytes) -> Matcher:
        """Output is one JSON value that satisfies the schema. Raises ConstraintError, naming what is not supported."""
        text = json.dumps(guided(parse_schema(schema_json)))
        try:
            grammar = LLMatcher.grammar_from_json_schema(text)
        except ValueError as error:
            raise ConstraintError(f"the JSON schema is not valid: {_one_line(str(error))}") from error
        return self._matcher(grammar, "JSON schema")

    def lark(self, grammar: str) -> Matcher:
        """Output follows a grammar in llguidance's Lark dialect. Raises ConstraintError."""
        return self._matcher(LLMatcher.grammar_from_lark(grammar), "grammar of the output")

    def _matcher(self, grammar: str, what: str) -> Matcher:
        with self._lock:
            prototype = self._compiled.get(grammar)
            if prototype is not None:
                self._compiled.move_to_end(grammar)
        if prototype is None:
            prototype = LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)
            if prototype.is_error():
                raise ConstraintError(f"the {what} cannot be used: {_one_line(prototype.get_error())}")
            with self._lock:
                self._compiled[grammar] = prototype
                while len(self._compiled) > _CACHED_GRAMMARS:
                    self._compiled.popitem(last=False)
        return Matcher(prototype.deep_copy(), self._tokenizer, len(self._pieces))


def ban(logits: NDArray[np.float32], mask: Mask) -> None:
    """Set the logits of tokens that a mask does not allow to minus infinity."""
    allowed = np.unpackbits(mask.view(np.uint8), count=logits.size, bitorder="little").view(np.bool_)
    np.copyto(logits, -np.inf, where=~allowed)


def _one_line(message: str) -> str:
    """The reason in a message of llguidance, without the listing of the grammar behind it."""
    reason = _LISTING.split(message.strip(), maxsplit=1)[0]
    line = " ".join(reason.split())
    return line if len(line) <= 300 else f"{line[:300]}…"

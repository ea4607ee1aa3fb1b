"""A model's vocabulary: text to tokens and back."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import llama_cpp
import numpy as np

from worker.llama_candidates import Candidates

NO_TOKEN = -1


@dataclass(frozen=True, slots=True)
class FillTokens:
    """The tokens of fill-in-the-middle prompts; `NO_TOKEN` where the model lacks one."""

    prefix: int
    suffix: int
    middle: int
    separator: int
    repository: int


class Vocabulary:
    """Reads one vocabulary; lives no longer than the model object that it belongs to.

    Safe to use from several threads: the engine only reads here, and the cache of pieces only grows.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self._pieces: dict[int, bytes] = {}
        self._plain_pieces: dict[int, bytes] = {}
        self._longest_piece = 0
        self.n_tokens: int = llama_cpp.llama_vocab_n_tokens(handle)
        self.type: int = llama_cpp.llama_vocab_type(handle)
        self.bos: int = llama_cpp.llama_vocab_bos(handle)
        self.eos: int = llama_cpp.llama_vocab_eos(handle)
        self.eot: int = llama_cpp.llama_vocab_eot(handle)
        self.sep: int = llama_cpp.llama_vocab_sep(handle)
        self.adds_bos: bool = llama_cpp.llama_vocab_get_add_bos(handle)
        self.adds_eos: bool = llama_cpp.llama_vocab_get_add_eos(handle)
        self.adds_sep: bool = llama_cpp.llama_vocab_get_add_sep(handle)
        self.fill = FillTokens(
            prefix=llama_cpp.llama_vocab_fim_pre(handle),
            suffix=llama_cpp.llama_vocab_fim_suf(handle),
            middle=llama_cpp.llama_vocab_fim_mid(handle),
            separator=llama_cpp.llama_vocab_fim_sep(handle),
            repository=llama_cpp.llama_vocab_fim_rep(handle),
        )

    @property
    def handle(self) -> Any:
        """The engine's pointer, for calls that need a vocabulary."""
        return self._handle

    def tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        """Tokens of `text`, with the special tokens a model puts around a text if `add_special`."""
        data = text.encode("utf-8", "surrogatepass")
        room = len(data) + 16
        buffer = (ctypes.c_int32 * room)()
        count = llama_cpp.llama_tokenize(self._handle, data, len(data), buffer, room, add_special, parse_special)
        if count < 0:
            room = -count
            buffer = (ctypes.c_int32 * room)()
            count = llama_cpp.llama_tokenize(self._handle, data, len(data), buffer, room, add_special, parse_special)
        if count < 0:
            raise ValueError(f"the text of {len(data)} bytes cannot be tokenized")
        return list(buffer[:count])

    def piece(self, token: int, special: bool = True) -> bytes:
        """The bytes of one token; control tokens have none unless `special`."""
        cache = self._pieces if special else self._plain_pieces
        known = cache.get(token)
        if known is None:
            known = cache[token] = self._read_piece(token, special)
        return known

    def _read_piece(self, token: int, special: bool) -> bytes:
        if not 0 <= token < self.n_tokens:
            raise ValueError(f"token {token} is not in the vocabulary of {self.n_tokens}")
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = llama_cpp.llama_token_to_piece(self._handle, token, buffer, room, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            room = -count

    def detokenize(self, tokens: Iterable[int], special: bool = True) -> bytes:
        """The bytes of a text, without what the tokenizer put in front of its first word."""
        ids = list(tokens)
        for token in ids:
            if not 0 <= token < self.n_tokens:
                raise ValueError(f"token {token} is not in the vocabulary of {self.n_tokens}")
        array = (ctypes.c_int32 * max(1, len(ids)))(*ids)
        room = 8 * len(ids) + 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            count = llama_cpp.llama_detokenize(self._handle, array, len(ids), buffer, room, False, special)
            if count >= 0:
                return buffer.raw[:count]
            room = -count

    def text(self, token: int) -> str:
        """The text of one token as the template variables `bos_token` and `eos_token` want it, empty for none."""
        return "" if token == NO_TOKEN else self.piece(token).decode("utf-8", "replace")

    @functools.cached_property
    def end_tokens(self) -> frozenset[int]:
        """Every token that ends a generation.

        They are what a grammar of the empty text allows. The engine reads the whole vocabulary for that, without
        holding up other threads; to ask for each token takes three times as long, and all of that in Python.
        """
        if self.type == llama_cpp.LLAMA_VOCAB_TYPE_NONE or not self.n_tokens:
            return frozenset()
        candidates = Candidates(self.n_tokens)
        candidates.fill(np.zeros(self.n_tokens, np.float32))
        grammar = llama_cpp.llama_sampler_init_grammar(self._handle, b'root ::= ""', b"root")
        candidates.apply(grammar)
        llama_cpp.llama_sampler_free(grammar)
        return frozenset(candidates.allowed())

    def ends_generation(self, token: int) -> bool:
        return token in self.end_tokens

    def is_control(self, token: int) -> bool:
        return bool(llama_cpp.llama_vocab_is_control(self._handle, token))

    def longest_piece(self) -> int:
        """Bytes of the longest token, at least 1. Reads the whole vocabulary, the first time."""
        if not self._longest_piece:
            read = llama_cpp.llama_vocab_get_text
            self._longest_piece = max(1, *(len(read(self._handle, token) or b"") for token in range(self.n_tokens)))
        return self._longest_piece

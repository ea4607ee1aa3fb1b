"""Requests that need the vocabulary or the template, not the weights: a sleeping worker answers them asleep."""

from __future__ import annotations

from msgspec import Struct

from protocol.chat import ChatPrompt, Prompt


class Tokenize(Struct, frozen=True, tag="tokenize", omit_defaults=True):
    request: int
    text: str
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class Tokenized(Struct, frozen=True, tag="tokenized", omit_defaults=True):
    """`pieces` are each token's bytes, empty unless asked for."""

    request: int
    tokens: tuple[int, ...]
    pieces: tuple[bytes, ...] = ()


class Detokenize(Struct, frozen=True, tag="detokenize", omit_defaults=True):
    request: int
    tokens: tuple[int, ...]


class Detokenized(Struct, frozen=True, tag="detokenized", omit_defaults=True):
    request: int
    text: str


class ApplyTemplate(Struct, frozen=True, tag="apply_template", omit_defaults=True):
    request: int
    chat: ChatPrompt


class TemplateApplied(Struct, frozen=True, tag="template_applied", omit_defaults=True):
    request: int
    prompt: str


class CountTokens(Struct, frozen=True, tag="count_tokens", omit_defaults=True):
    request: int
    prompt: Prompt


class TokensCounted(Struct, frozen=True, tag="tokens_counted", omit_defaults=True):
    request: int
    n_tokens: int

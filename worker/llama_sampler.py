"""Sampling: `SamplingParameters` as a chain of llama.cpp's samplers, and the shortcut for greedy requests."""

from __future__ import annotations

import ctypes
import math
import secrets
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from protocol.sampling import SamplingParameters
from worker.llama_candidates import Candidates
from worker.llama_vocabulary import Vocabulary

Floats = npt.NDArray[np.float32]

MIROSTAT_CANDIDATES = 100
SEED_LIMIT = 1 << 32


class BadSampling(ValueError):
    """Sampling parameters that no sampler can be made from; `param` names the field."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


def new_seed() -> int:
    return secrets.randbelow(SEED_LIMIT)


def is_greedy(parameters: SamplingParameters) -> bool:
    """Whether the most likely token is always taken, unchanged by what came before."""
    return (
        parameters.temperature <= 0
        and parameters.mirostat == 0
        and parameters.dry_multiplier == 0
        and (
            parameters.repeat_last_n == 0
            or (
                parameters.repeat_penalty == 1
                and parameters.presence_penalty == 0
                and parameters.frequency_penalty == 0
            )
        )
        and not (parameters.xtc_probability > 0 and "xtc" in parameters.samplers)
    )


def suppressed_tokens(vocabulary: Vocabulary) -> list[int]:
    """Tokens that the model file forbids in any output."""
    count = ctypes.c_int32()
    tokens = llama_cpp.llama_vocab_get_suppress_tokens(vocabulary.handle, ctypes.byref(count))
    return [tokens[index] for index in range(count.value)] if tokens else []


class Sampler:
    """Chooses the tokens of one sequence. Not shared between threads; `close` frees it.

    `biases` are (token, bias) pairs, -inf bans a token. `grammar` is GBNF, empty for none.
    Raises `BadSampling` for what llama.cpp will not take.
    """

    def __init__(
        self,
        parameters: SamplingParameters,
        vocabulary: Vocabulary,
        seed: int,
        n_ctx: int,
        biases: Sequence[tuple[int, float]] = (),
        grammar: str = "",
    ) -> None:
        self._vocabulary = vocabulary
        self._chain: Any = None
        self._grammar: Any = None
        self.greedy = is_greedy(parameters)
        self._memory = 0
        """Tokens that the chain looks back on."""
        self._most = 0
        """How many of the likeliest tokens the chain looks at; 0 for all."""
        biases = [*biases, *((token, -math.inf) for token in suppressed_tokens(vocabulary))]
        self._bias_tokens = np.array([token for token, _ in biases], np.int64)
        self._bias_values = np.array([bias for _, bias in biases], np.float32)
        if not self.greedy:
            self._chain = self._build(parameters, seed, n_ctx)
        if grammar:
            self._grammar = llama_cpp.llama_sampler_init_grammar(vocabulary.handle, grammar.encode(), b"root")
            if not self._grammar:
                self.close()
                raise BadSampling("the grammar cannot be parsed", "grammar")

    def close(self) -> None:
        for part in (self._chain, self._grammar):
            if part:
                llama_cpp.llama_sampler_free(part)
        self._chain = self._grammar = None

    def sample(self, logits: Floats, candidates: Candidates) -> int:
        """The next token for a row of logits, which may be changed; the token counts as generated.

        `candidates` hold the distribution that was drawn from, unless the request is greedy.
        """
        if self._bias_tokens.size:
            logits[self._bias_tokens] += self._bias_values
        token = self._draw(logits, candidates)
        if self._grammar and not self._grammar_allows(token):
            candidates.fill(logits)
            candidates.apply(self._grammar)
            token = self._draw_left(candidates)
        self.accept(token)
        return token

    def accept(self, token: int) -> None:
        """Count a token as generated."""
        if self._chain:
            llama_cpp.llama_sampler_accept(self._chain, token)
        if self._grammar:
            llama_cpp.llama_sampler_accept(self._grammar, token)

    def remember_prompt(self, tokens: Sequence[int]) -> None:
        """Let the penalties see the end of the prompt, where there are any."""
        if self._chain and self._memory:
            for token in tokens[-self._memory :]:
                llama_cpp.llama_sampler_accept(self._chain, token)

    def _draw(self, logits: Floats, candidates: Candidates) -> int:
        if self.greedy:
            return int(logits.argmax())
        candidates.fill(logits, self._most)
        return self._draw_left(candidates)

    def _draw_left(self, candidates: Candidates) -> int:
        if self.greedy:
            return candidates.likeliest()
        candidates.apply(self._chain)
        return candidates.selected

    def _grammar_allows(self, token: int) -> bool:
        # A grammar is slow over a whole vocabulary, so it judges the one token that would be taken.
        single = llama_cpp.llama_token_data(id=token, logit=1.0, p=0.0)
        array = llama_cpp.llama_token_data_array(data=ctypes.pointer(single), size=1, selected=-1, sorted=False)
        llama_cpp.llama_sampler_apply(self._grammar, ctypes.byref(array))
        return not math.isinf(single.logit)

    def _build(self, parameters: SamplingParameters, seed: int, n_ctx: int) -> Any:
        chain_parameters = llama_cpp.llama_sampler_chain_default_params()
        chain_parameters.no_perf = True
        chain = llama_cpp.llama_sampler_chain_init(chain_parameters)
        n_vocab = self._vocabulary.n_tokens
        if parameters.mirostat == 1:
            parts = [
                llama_cpp.llama_sampler_init_temp(parameters.temperature),
                llama_cpp.llama_sampler_init_mirostat(
                    n_vocab, seed, parameters.mirostat_tau, parameters.mirostat_eta, MIROSTAT_CANDIDATES
                ),
            ]
        elif parameters.mirostat == 2:
            parts = [
                llama_cpp.llama_sampler_init_temp(parameters.temperature),
                llama_cpp.llama_sampler_init_mirostat_v2(seed, parameters.mirostat_tau, parameters.mirostat_eta),
            ]
        else:
            named = [
                (name, part) for name in parameters.samplers if (part := self._part(name, parameters, seed, n_ctx))
            ]
            parts = [part for _, part in named]
            if named and named[0][0] == "top_k":
                self._most = parameters.top_k
            if "adaptive_p" in parameters.samplers:
                parts.append(
                    llama_cpp.llama_sampler_init_adaptive_p(parameters.adaptive_target, parameters.adaptive_decay, seed)
                )
            else:
                parts.append(llama_cpp.llama_sampler_init_dist(seed))
        for part in parts:
            llama_cpp.llama_sampler_chain_add(chain, part)
        return chain

    def _part(self, name: str, p: SamplingParameters, seed: int, n_ctx: int) -> Any:
        """One sampler of the chain, None for those that would change nothing."""
        if name == "penalties":
            last_n = n_ctx if p.repeat_last_n < 0 else p.repeat_last_n
            if last_n == 0 or (p.repeat_penalty == 1 and p.frequency_penalty == 0 and p.presence_penalty == 0):
                return None
            self._memory = max(self._memory, last_n)
            return llama_cpp.llama_sampler_init_penalties(
                self._vocabulary.n_tokens, last_n, p.repeat_penalty, p.frequency_penalty, p.presence_penalty
            )
        if name == "dry":
            return self._dry(p, n_ctx) if p.dry_multiplier != 0 else None
        if name == "top_n_sigma":
            return llama_cpp.llama_sampler_init_top_n_sigma(p.top_n_sigma) if p.top_n_sigma >= 0 else None
        if name == "top_k":
            return llama_cpp.llama_sampler_init_top_k(p.top_k) if p.top_k > 0 else None
        if name == "typ_p":
            return llama_cpp.llama_sampler_init_typical(p.typical_p, p.min_keep) if p.typical_p < 1 else None
        if name == "top_p":
            return llama_cpp.llama_sampler_init_top_p(p.top_p, p.min_keep) if p.top_p < 1 else None
        if name == "min_p":
            return llama_cpp.llama_sampler_init_min_p(p.min_p, p.min_keep) if p.min_p > 0 else None
        if name == "xtc":
            if p.xtc_probability <= 0:
                return None
            return llama_cpp.llama_sampler_init_xtc(p.xtc_probability, p.xtc_threshold, p.min_keep, seed)
        if name == "temperature":
            return llama_cpp.llama_sampler_init_temp_ext(p.temperature, p.dynatemp_range, p.dynatemp_exponent)
        if name == "infill":
            return llama_cpp.llama_sampler_init_infill(self._vocabulary.handle)
        if name == "adaptive_p":
            return None  # stands at the end of the chain, wherever it is named
        raise BadSampling(f"there is no sampler {name!r}", "samplers")

    def _dry(self, p: SamplingParameters, n_ctx: int) -> Any:
        breakers = [text.encode() for text in p.dry_sequence_breakers]
        array = (ctypes.c_char_p * len(breakers))(*breakers)
        last_n = n_ctx if p.dry_penalty_last_n < 0 else p.dry_penalty_last_n
        self._memory = max(self._memory, last_n)
        return llama_cpp.llama_sampler_init_dry(
            self._vocabulary.handle, p.dry_multiplier, p.dry_base, p.dry_allowed_length, last_n, array, len(breakers)
        )

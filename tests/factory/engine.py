"""Just enough of the engine to see that a built file is what it says."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Opened:
    """A model with a context of its own."""

    model: Any
    context: Any
    vocab: Any

    def tokenize(self, text: str) -> list[int]:
        data = text.encode()
        tokens = (llama_cpp.llama_token * (len(data) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, data, len(data), tokens, len(tokens), True, True)
        return list(tokens[:count])

    def piece(self, token: int, *, special: bool = False) -> bytes:
        buffer = ctypes.create_string_buffer(64)
        size = llama_cpp.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, special)
        return buffer.raw[:size]

    def decode(self, tokens: list[int]) -> None:
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        assert llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(array, len(tokens))) == 0

    def logits(self) -> NDArray[np.float32]:
        pointer = llama_cpp.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(pointer, (llama_cpp.llama_vocab_n_tokens(self.vocab),)).copy()

    def greedy(self, prompt: str, count: int) -> bytes:
        self.decode(self.tokenize(prompt))
        text = b""
        for _ in range(count):
            token = int(self.logits().argmax())
            text += self.piece(token)
            self.decode([token])
        return text

    def pooled(self, text: str, size: int) -> NDArray[np.float32]:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        self.decode(self.tokenize(text))
        pointer = llama_cpp.llama_get_embeddings_seq(self.context, 0)
        return np.ctypeslib.as_array(pointer, (size,)).copy()


def load(path: Path) -> Any:
    """The engine's model pointer, None if it refuses the file."""
    llama_cpp.llama_backend_init()
    return llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())


@contextmanager
def opened(path: Path, *, embeddings: bool = False) -> Iterator[Opened]:
    """Load a file that must load."""
    model = load(path)
    assert model, f"{path.name} does not load"
    parameters = llama_cpp.llama_context_default_params()
    parameters.n_ctx = 256
    parameters.n_threads = parameters.n_threads_batch = 1
    parameters.embeddings = embeddings
    context = llama_cpp.llama_init_from_model(model, parameters)
    assert context, f"{path.name} gets no context"
    try:
        yield Opened(model, context, llama_cpp.llama_model_get_vocab(model))
    finally:
        llama_cpp.llama_free(context)
        llama_cpp.llama_model_free(model)

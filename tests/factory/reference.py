"""What the engine's own helper makes of a prompt with a file in it: the measure for ours."""

from __future__ import annotations

import ctypes
from pathlib import Path

import llama_cpp
import numpy as np
from llama_cpp import mtmd_cpp
from numpy.typing import NDArray

from tests.factory.engine import opened


def logprobs(model: Path, projector: Path, text: str, file: bytes) -> NDArray[np.float32]:
    """Logarithms of the probabilities of the first token behind a text with one marker."""
    with opened(model) as engine:
        parameters = mtmd_cpp.mtmd_context_params_default()
        parameters.use_gpu = False
        parameters.n_threads = 1
        context = mtmd_cpp.mtmd_init_from_file(str(projector).encode(), engine.model, parameters)
        assert context, f"{projector.name} does not load"
        buffer = (ctypes.c_uint8 * len(file)).from_buffer_copy(file)
        bitmap = mtmd_cpp.mtmd_helper_bitmap_init_from_buf(context, buffer, len(file), False)
        assert bitmap
        chunks = mtmd_cpp.mtmd_input_chunks_init()
        words = text.encode()
        given = mtmd_cpp.mtmd_input_text(text=words, text_len=len(words), add_special=True, parse_special=True)
        bitmaps = (mtmd_cpp.mtmd_bitmap_p_ctypes * 1)(bitmap)
        n_past = llama_cpp.llama_pos(0)
        try:
            assert mtmd_cpp.mtmd_tokenize(context, chunks, ctypes.byref(given), bitmaps, 1) == 0
            done = mtmd_cpp.mtmd_helper_eval_chunks(
                context, engine.context, chunks, 0, 0, 128, True, ctypes.byref(n_past)
            )
            assert done == 0
            logits = engine.logits()
        finally:
            mtmd_cpp.mtmd_input_chunks_free(chunks)
            mtmd_cpp.mtmd_bitmap_free(bitmap)
            mtmd_cpp.mtmd_free(context)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())

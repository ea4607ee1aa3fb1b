"""The projector loads beside its language model and tells images apart."""

from __future__ import annotations

import ctypes
from pathlib import Path

import llama_cpp
import numpy as np
import pytest
from llama_cpp import mtmd_cpp
from numpy.typing import NDArray

from tests import factory
from tests.factory.engine import Opened, opened
from tests.factory.projector import IMAGE_TOKENS

pytestmark = pytest.mark.model

N_EMBD = 64


def _embed(engine: Opened, projector: Path, color: int) -> NDArray[np.float32]:
    """The embeddings of an image of one color, in a text."""
    parameters = mtmd_cpp.mtmd_context_params_default()
    parameters.use_gpu = False
    parameters.n_threads = 1
    context = mtmd_cpp.mtmd_init_from_file(str(projector).encode(), engine.model, parameters)
    assert context
    pixels = np.full((40, 50, 3), color, np.uint8)
    pixels[:20] = 255 - color
    data = pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
    bitmap = mtmd_cpp.mtmd_bitmap_init(50, 40, data)
    chunks = mtmd_cpp.mtmd_input_chunks_init()
    words = b"Hello " + mtmd_cpp.mtmd_get_marker(context) + b" world"
    text = mtmd_cpp.mtmd_input_text(text=words, text_len=len(words), add_special=True, parse_special=True)
    bitmaps = (mtmd_cpp.mtmd_bitmap_p_ctypes * 1)(bitmap)
    try:
        assert mtmd_cpp.mtmd_tokenize(context, chunks, ctypes.byref(text), bitmaps, 1) == 0
        kinds = [
            mtmd_cpp.mtmd_input_chunk_get_type(mtmd_cpp.mtmd_input_chunks_get(chunks, i))
            for i in range(mtmd_cpp.mtmd_input_chunks_size(chunks))
        ]
        assert kinds == [0, 1, 0]
        image = mtmd_cpp.mtmd_input_chunks_get(chunks, 1)
        assert mtmd_cpp.mtmd_input_chunk_get_n_tokens(image) == IMAGE_TOKENS
        assert mtmd_cpp.mtmd_encode_chunk(context, image) == 0
        output = mtmd_cpp.mtmd_get_output_embd(context)
        return np.ctypeslib.as_array(output, (IMAGE_TOKENS, N_EMBD)).copy()
    finally:
        mtmd_cpp.mtmd_input_chunks_free(chunks)
        mtmd_cpp.mtmd_bitmap_free(bitmap)
        mtmd_cpp.mtmd_free(context)


def test_images_become_embeddings(tmp_path: Path) -> None:
    projector = factory.projector(tmp_path / "mmproj.gguf")
    with opened(factory.language_model(tmp_path / "m.gguf")) as engine:
        assert llama_cpp.llama_model_n_embd(engine.model) == N_EMBD
        one, again, other = (_embed(engine, projector, color) for color in (10, 10, 200))
    assert np.isfinite(one).all()
    assert np.array_equal(one, again)
    assert not np.allclose(one, other, atol=1e-2)

"""A multimodal projector: from the bytes of an image or a sound to embeddings. Used by the media thread alone."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt
from llama_cpp import mtmd_cpp

from worker.image_header import check_image
from worker.llama_log import PROJECTOR, EngineLog
from worker.llama_model import Model, check_is_gguf, engine_failure
from worker.media_error import MediaError
from worker.media_file import Embeddings, MediaChunk, MediaFile, file_digest
from worker.media_tokens import media_tokens
from worker.sound_header import checked_sound, is_sound

_SECTIONS = ("t", "y", "x", "z")
"""The order in which the engine takes the sections of an M-RoPE position."""
_NO_PROGRAMS = b"/dev/null"
"""Where the library looks for programs that decode video: what it cannot decode by itself must not reach others."""
_SAMPLES_LEAST = 2

_log_set = mtmd_cpp._libmtmd["mtmd_helper_log_set"]
_log_set.restype = None
_log_set.argtypes = [llama_cpp.llama_log_callback, ctypes.c_void_p]


class Encoding(Exception):
    """The engine could not encode a file."""


class Projector:
    """Belongs to one loaded model and must be closed before it. Raises `LoadError` when it cannot be loaded.

    `abandoned()` is asked between two chunks of a file.
    """

    def __init__(self, model: Model, path: str, n_threads: int, use_gpu: bool, log: EngineLog) -> None:
        check_is_gguf(path)
        _log_set(log.callback, ctypes.c_void_p(PROJECTOR))
        parameters = mtmd_cpp.mtmd_context_params_default()
        parameters.use_gpu = use_gpu
        parameters.n_threads = n_threads
        parameters.print_timings = False
        log.forget_errors()
        self._handle: Any = mtmd_cpp.mtmd_init_from_file(os.fsencode(path), model.handle, parameters)
        if not self._handle:
            raise engine_failure(path, log)
        self._log = log
        self._width = int(llama_cpp.llama_model_n_embd_inp(model.handle))
        self._marker = mtmd_cpp.mtmd_get_marker(self._handle) or mtmd_cpp.mtmd_default_marker()
        self.sees = bool(mtmd_cpp.mtmd_support_vision(self._handle))
        self.hears = bool(mtmd_cpp.mtmd_support_audio(self._handle))
        self._n_sections = 4 if mtmd_cpp.mtmd_decode_use_mrope(self._handle) else 1

    @property
    def modalities(self) -> tuple[str, ...]:
        return (*(("image",) if self.sees else ()), *(("audio",) if self.hears else ()))

    def close(self) -> None:
        if self._handle:
            mtmd_cpp.mtmd_free(self._handle)
            self._handle = None

    def encode(self, data: bytes, abandoned: Callable[[], bool]) -> MediaFile | None:
        """Encode a file, None if it was abandoned. Raises `MediaError` for a bad one, `Encoding` when it fails."""
        bitmap = self._bitmap(data)
        try:
            return self._encode(bitmap, file_digest(data), abandoned)
        finally:
            mtmd_cpp.mtmd_bitmap_free(bitmap)

    def _bitmap(self, data: bytes) -> Any:
        sound = is_sound(data)
        if sound:
            if not self.hears:
                raise MediaError("this model's projector takes no sounds")
            data = checked_sound(data)
        else:
            if not self.sees:
                raise MediaError("this model's projector takes no images")
            check_image(data)
        options = mtmd_cpp.mtmd_helper_init_opt_default()
        options.video_params.ffmpeg_bin_dir = _NO_PROGRAMS
        buffer = (ctypes.c_uint8 * len(data)).from_buffer_copy(data)
        bitmap = mtmd_cpp.mtmd_helper_bitmap_init_from_buf(self._handle, buffer, len(data), False, options)
        if not bitmap:
            raise MediaError("a damaged sound: it cannot be decoded" if sound else "a damaged image")
        if sound and mtmd_cpp.mtmd_bitmap_get_nx(bitmap) < _SAMPLES_LEAST:
            mtmd_cpp.mtmd_bitmap_free(bitmap)
            raise MediaError("a sound without samples")
        return bitmap

    def _encode(self, bitmap: Any, digest: bytes, abandoned: Callable[[], bool]) -> MediaFile | None:
        text = mtmd_cpp.mtmd_input_text(
            text=self._marker, text_len=len(self._marker), add_special=False, parse_special=True
        )
        bitmaps = (mtmd_cpp.mtmd_bitmap_p_ctypes * 1)(bitmap)
        chunks = mtmd_cpp.mtmd_input_chunks_init()
        try:
            if mtmd_cpp.mtmd_tokenize(self._handle, chunks, ctypes.byref(text), bitmaps, 1) != 0:
                raise MediaError("it cannot be scaled or cut as the projector needs it")
            parts: list[tuple[int, ...] | MediaChunk] = []
            for index in range(mtmd_cpp.mtmd_input_chunks_size(chunks)):
                if abandoned():
                    return None
                parts.append(self._part(mtmd_cpp.mtmd_input_chunks_get(chunks, index), digest, index))
            return MediaFile(tuple(parts))
        finally:
            mtmd_cpp.mtmd_input_chunks_free(chunks)

    def _part(self, chunk: Any, digest: bytes, index: int) -> tuple[int, ...] | MediaChunk:
        kind = mtmd_cpp.mtmd_input_chunk_get_type(chunk)
        if kind == mtmd_cpp.MTMD_INPUT_CHUNK_TYPE_TEXT:
            count = ctypes.c_size_t()
            tokens = mtmd_cpp.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(count))
            return tuple(tokens[: count.value])
        n_tokens = int(mtmd_cpp.mtmd_input_chunk_get_n_tokens(chunk))
        n_positions = int(mtmd_cpp.mtmd_input_chunk_get_n_pos(chunk))
        is_image = kind == mtmd_cpp.MTMD_INPUT_CHUNK_TYPE_IMAGE
        offsets, slopes = self._positions(chunk if is_image else None, n_tokens)
        return MediaChunk(
            tokens=media_tokens(digest, index, n_tokens, n_positions),
            embeddings=self._embeddings(chunk, n_tokens),
            offsets=offsets,
            slopes=slopes,
            whole=bool(mtmd_cpp.mtmd_decode_use_non_causal(self._handle, chunk)),
        )

    def _embeddings(self, chunk: Any, n_tokens: int) -> Embeddings:
        self._log.forget_errors()
        if mtmd_cpp.mtmd_encode_chunk(self._handle, chunk) != 0:
            raise Encoding("; ".join(self._log.errors()) or "the projector failed")
        output = mtmd_cpp.mtmd_get_output_embd(self._handle)
        return np.ctypeslib.as_array(output, (n_tokens, self._width)).copy()

    def _positions(self, image: Any, n_tokens: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        """How the positions of a chunk's embeddings depend on where the chunk begins."""
        if self._n_sections == 1 or image is None:
            row = np.arange(n_tokens, dtype=np.int32)
            offsets = np.tile(row, (self._n_sections, 1))
            return offsets, np.ones_like(offsets)
        tokens = mtmd_cpp.mtmd_input_chunk_get_tokens_image(image)
        at_zero, at_one = (self._grid(tokens, begin, n_tokens) for begin in (0, 1))
        return at_zero, at_one - at_zero

    def _grid(self, tokens: Any, begin: int, n_tokens: int) -> npt.NDArray[np.int32]:
        grid = (mtmd_cpp.mtmd_decoder_pos * n_tokens)()
        mtmd_cpp.mtmd_helper_image_get_decoder_pos(tokens, begin, grid)
        return np.array([[getattr(cell, name) for cell in grid] for name in _SECTIONS], np.int32)

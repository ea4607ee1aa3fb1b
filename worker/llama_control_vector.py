"""Control vectors: a direction per layer that is added to what the layer puts out."""

from __future__ import annotations

import ctypes
import functools
import os
import re
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt
from llama_cpp import llama_cpp as bindings

from protocol.load import LoadParameters
from worker.llama_model import LoadError, Model, check_is_gguf

Floats = npt.NDArray[np.float32]

_F32 = 0
_NAME = re.compile(r"direction\.([0-9]+)")


class _InitParameters(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


@functools.cache
def _function(name: str, result: Any, *arguments: Any) -> Any:
    # The bindings cover llama.h alone; the reader of GGUF files comes with the same library.
    function = bindings._lib[name]
    function.restype = result
    function.argtypes = list(arguments)
    return function


def apply_control_vectors(context: Any, model: Model, parameters: LoadParameters) -> None:
    """Add the control vectors to all that a context computes from now on.

    Raises `LoadError` for a file that holds none, or none of this model's width.
    """
    layers = model.metadata_number("block_count")
    total = np.zeros((layers, model.n_embd), np.float32)
    for spec in parameters.control_vectors:
        for layer, direction in _directions(spec.path).items():
            if direction.size != model.n_embd:
                raise LoadError(f"control vector {spec.path}: it is {direction.size} wide, the model {model.n_embd}")
            if layer <= layers:
                total[layer - 1] += spec.scale * direction
    first, last = parameters.control_vector_layers
    code = llama_cpp.llama_set_adapter_cvec(
        context,
        total.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
        total.size,
        model.n_embd,
        first or 1,
        last or layers,
    )
    if code:
        raise LoadError(f"the control vectors cannot be applied (llama_set_adapter_cvec returned {code})")


def _directions(path: str) -> dict[int, Floats]:
    """The directions in a file by layer, counted from 1. Raises `LoadError`."""
    check_is_gguf(path)
    handle = _function("gguf_init_from_file", ctypes.c_void_p, ctypes.c_char_p, _InitParameters)(
        os.fsencode(path), _InitParameters(True, None)
    )
    if not handle:
        raise LoadError(f"control vector {path}: it cannot be read")
    try:
        places = _places(handle, path)
    finally:
        _function("gguf_free", None, ctypes.c_void_p)(handle)
    found: dict[int, Floats] = {}
    try:
        with open(path, "rb") as file:
            for layer, offset, size in places:
                file.seek(offset)
                direction = np.frombuffer(file.read(size), np.float32)
                if direction.nbytes != size:
                    raise LoadError(f"control vector {path}: the file ends too early")
                found[layer] = found[layer] + direction if layer in found else direction
    except OSError as error:
        raise LoadError(f"control vector {path}: {error.strerror}") from error
    return found


def _places(handle: int, path: str) -> list[tuple[int, int, int]]:
    """(layer, offset in the file, bytes) of each direction."""
    by_index = (ctypes.c_void_p, ctypes.c_int64)
    count = _function("gguf_get_n_tensors", ctypes.c_int64, ctypes.c_void_p)(handle)
    data = _function("gguf_get_data_offset", ctypes.c_size_t, ctypes.c_void_p)(handle)
    places: list[tuple[int, int, int]] = []
    for index in range(count):
        name = _function("gguf_get_tensor_name", ctypes.c_char_p, *by_index)(handle, index).decode("utf-8", "replace")
        match = _NAME.fullmatch(name)
        if match is None or int(match[1]) < 1:
            raise LoadError(f"control vector {path}: tensor {name!r} is no direction of a layer")
        if _function("gguf_get_tensor_type", ctypes.c_int, *by_index)(handle, index) != _F32:
            raise LoadError(f"control vector {path}: tensor {name!r} is not of type F32")
        offset = _function("gguf_get_tensor_offset", ctypes.c_size_t, *by_index)(handle, index)
        size = _function("gguf_get_tensor_size", ctypes.c_size_t, *by_index)(handle, index)
        places.append((int(match[1]), data + offset, size))
    if not places:
        raise LoadError(f"control vector {path}: it holds no directions")
    return places

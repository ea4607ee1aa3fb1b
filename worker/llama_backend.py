"""The compute devices of this build of llama.cpp, and the names its parameters use."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import llama_cpp
from llama_cpp import llama_cpp as bindings

from protocol.load import Device

_DEVICE_KINDS = {0: "cpu", 1: "gpu", 2: "igpu", 3: "accel", 4: "meta"}

CACHE_TYPES: dict[str, int] = {
    "f32": 0,
    "f16": 1,
    "q4_0": 2,
    "q4_1": 3,
    "q5_0": 6,
    "q5_1": 7,
    "q8_0": 8,
    "iq4_nl": 20,
    "bf16": 30,
}
"""`enum ggml_type` of the types that a KV cache may have."""


@functools.cache
def _function(name: str, result: Any, *arguments: Any) -> Any:
    # The bindings cover llama.h alone; ggml's device functions come with the same library.
    function = bindings._lib[name]
    function.restype = result
    function.argtypes = list(arguments)
    return function


def start_backend() -> None:
    """Load the backends of this build; once per process, before anything else here."""
    llama_cpp.llama_backend_init()


def build() -> str:
    """The build of llama.cpp and of its bindings: what kept state depends on."""
    return f"llama-cpp-python {llama_cpp.__version__}, llama.cpp {llama_cpp.llama_version().decode()}"


def device_handles() -> list[ctypes.c_void_p]:
    count = _function("ggml_backend_dev_count", ctypes.c_size_t)()
    get = _function("ggml_backend_dev_get", ctypes.c_void_p, ctypes.c_size_t)
    return [ctypes.c_void_p(get(index)) for index in range(count)]


def device_name(handle: ctypes.c_void_p) -> str:
    name = _function("ggml_backend_dev_name", ctypes.c_char_p, ctypes.c_void_p)(handle)
    return str(name.decode("utf-8", "replace"))


def device_kind(handle: ctypes.c_void_p) -> str:
    return _DEVICE_KINDS.get(_function("ggml_backend_dev_type", ctypes.c_int, ctypes.c_void_p)(handle), "other")


def device_buffer_type(handle: ctypes.c_void_p) -> ctypes.c_void_p:
    """The device's default buffer type, as tensor placement wants it."""
    return ctypes.c_void_p(_function("ggml_backend_dev_buffer_type", ctypes.c_void_p, ctypes.c_void_p)(handle))


def devices() -> tuple[Device, ...]:
    """Every compute device. Asking a GPU's driver takes some of its memory, so only workers with a model ask."""
    describe = _function("ggml_backend_dev_description", ctypes.c_char_p, ctypes.c_void_p)
    memory = _function(
        "ggml_backend_dev_memory",
        None,
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_size_t),
        ctypes.POINTER(ctypes.c_size_t),
    )
    found = []
    for handle in device_handles():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        memory(handle, ctypes.byref(free), ctypes.byref(total))
        found.append(
            Device(
                name=device_name(handle),
                kind=device_kind(handle),
                description=describe(handle).decode("utf-8", "replace"),
                memory_total=total.value,
                memory_free=free.value,
            )
        )
    return tuple(found)


def has_gpu() -> bool:
    return any(device_kind(handle) in ("gpu", "igpu") for handle in device_handles())

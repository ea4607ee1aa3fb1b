"""LoRA adapters of one model, and which of them a context applies."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import llama_cpp
from llama_cpp import llama_cpp as bindings

from protocol.load import AdapterSpec
from protocol.slots import AdapterInfo
from worker.llama_log import EngineLog
from worker.llama_model import Model, check_is_gguf, engine_failure

Scales = tuple[tuple[int, float], ...]
"""(adapter, scale) pairs in order; those at 0 are left out."""


class Adapters:
    """Raises `LoadError` for a file that is no adapter of the model. Freed with the model, or by `close`."""

    def __init__(self, model: Model, specs: Sequence[AdapterSpec], log: EngineLog) -> None:
        self._specs = tuple(specs)
        self._handles: list[Any] = []
        self.defaults: Scales = normalized({number: spec.scale for number, spec in enumerate(specs)})
        self._applied: Scales = ()
        for spec in specs:
            check_is_gguf(spec.path)
            log.forget_errors()
            handle = llama_cpp.llama_adapter_lora_init(model.handle, os.fsencode(spec.path))
            if not handle:
                self.close()
                raise engine_failure(f"adapter {spec.path}", log)
            self._handles.append(handle)

    def __len__(self) -> int:
        return len(self._handles)

    def close(self) -> None:
        for handle in self._handles:
            llama_cpp.llama_adapter_lora_free(handle)
        self._handles.clear()

    def info(self) -> tuple[AdapterInfo, ...]:
        """The adapters with their default scales of now."""
        scales = dict(self.defaults)
        return tuple(
            AdapterInfo(
                id=number,
                path=spec.path,
                scale=scales.get(number, 0.0),
                task_name=_metadata(handle, "adapter.lora.task_name"),
                prompt_prefix=_metadata(handle, "adapter.lora.prompt_prefix"),
            )
            for number, (spec, handle) in enumerate(zip(self._specs, self._handles, strict=True))
        )

    def apply(self, context: Any, scales: Scales) -> None:
        """Use these adapters from the next step on."""
        if scales == self._applied:
            return
        handles = (bindings.llama_adapter_lora_p_ctypes * len(scales))(*(self._handles[number] for number, _ in scales))
        values = (ctypes.c_float * len(scales))(*(scale for _, scale in scales))
        llama_cpp.llama_set_adapters_lora(context, handles, len(scales), values)
        self._applied = scales


def normalized(scales: dict[int, float]) -> Scales:
    return tuple(sorted((number, scale) for number, scale in scales.items() if scale))


def _metadata(adapter: Any, key: str) -> str:
    buffer = ctypes.create_string_buffer(1024)
    length = llama_cpp.llama_adapter_meta_val_str(adapter, key.encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace") if length >= 0 else ""

"""`LoadParameters` as the structs that llama.cpp takes, with everything that these structs point to kept alive."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

import llama_cpp

from protocol.load import LoadParameters, VocabularyFacts
from worker.llama_backend import CACHE_TYPES, device_buffer_type, device_handles, device_kind, device_name

_SPLIT_MODES = {"none": 0, "layer": 1, "row": 2, "tensor": 3}
_ROPE_SCALINGS = {"": -1, "none": 0, "linear": 1, "yarn": 2, "longrope": 3}
_FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}
_POOLINGS = {"": -1, "none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}
POOLING_NAMES = {number: name for name, number in _POOLINGS.items()}
_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"


class UnusableParameter(ValueError):
    """A load parameter that this build cannot honour; the message names it."""


class _TensorPlacement(ctypes.Structure):
    """`struct llama_model_tensor_buft_override`, which the bindings leave out."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


class ModelParameters:
    """`struct llama_model_params`; `progress(fraction)` returns False to abort the load.

    Either the vocabulary alone is loaded, or all but the vocabulary that `omitted` describes, or everything.
    """

    def __init__(
        self,
        parameters: LoadParameters,
        progress: Callable[[float], bool] | None,
        vocab_only: bool = False,
        omitted: VocabularyFacts | None = None,
    ) -> None:
        self.struct = llama_cpp.llama_model_default_params()
        self._kept: list[Any] = []
        self.struct.vocab_only = vocab_only
        if progress is not None:
            callback = llama_cpp.llama_progress_callback(lambda fraction, _data: progress(fraction))
            self._kept.append(callback)
            self.struct.progress_callback = callback
        # The first rule for a key counts.
        self._override_metadata((*_without_vocabulary(omitted), *parameters.override_kv))
        if vocab_only:
            return
        self.struct.n_gpu_layers = parameters.n_gpu_layers
        self.struct.split_mode = _named(_SPLIT_MODES, parameters.split_mode, "split-mode")
        self.struct.main_gpu = parameters.main_gpu
        self.struct.load_mode = _load_mode(parameters)
        self._choose_devices(parameters)
        self._split_tensors(parameters.tensor_split)
        self._place_tensors(parameters)

    def _choose_devices(self, parameters: LoadParameters) -> None:
        if parameters.rpc:
            raise UnusableParameter("rpc: this build of llama.cpp has no RPC backend")
        if not parameters.devices:
            return
        known = {device_name(handle): handle for handle in device_handles()}
        chosen = []
        for name in parameters.devices:
            if name == "none":
                continue
            if name not in known:
                raise UnusableParameter(f"device: there is no {name!r}; there are {', '.join(known)}")
            chosen.append(known[name])
        array = (ctypes.c_void_p * (len(chosen) + 1))(*chosen, None)
        self._kept.append(array)
        self.struct.devices = ctypes.cast(array, ctypes.c_void_p)

    def _split_tensors(self, shares: tuple[float, ...]) -> None:
        if not shares:
            return
        room = int(llama_cpp.llama_max_devices())
        if len(shares) > room:
            raise UnusableParameter(f"tensor-split: {len(shares)} shares for at most {room} devices")
        array = (ctypes.c_float * room)(*shares)
        self._kept.append(array)
        self.struct.tensor_split = array

    def _place_tensors(self, parameters: LoadParameters) -> None:
        handles = device_handles()
        buffers = {device_name(handle): device_buffer_type(handle) for handle in handles}
        cpu = next(device_buffer_type(handle) for handle in handles if device_kind(handle) == "cpu")
        placements = [(rf"blk\.{layer}{_EXPERTS}".encode(), cpu) for layer in range(parameters.n_cpu_moe)]
        for rule in parameters.override_tensor:
            pattern, _, name = rule.rpartition("=")
            if not pattern or name not in buffers:
                raise UnusableParameter(
                    f"override-tensor: {rule!r} is not PATTERN=DEVICE; there are {', '.join(buffers)}"
                )
            try:
                re.compile(pattern)
            except re.error as error:
                raise UnusableParameter(f"override-tensor: {pattern!r}: {error}") from error
            placements.append((pattern.encode(), buffers[name]))
        if placements:
            array = (_TensorPlacement * (len(placements) + 1))()
            for entry, (pattern_bytes, buffer) in zip(array, placements, strict=False):
                entry.pattern, entry.buffer_type = pattern_bytes, buffer
            self._kept.append(array)
            self.struct.tensor_buft_overrides = ctypes.cast(array, ctypes.c_void_p)

    def _override_metadata(self, rules: tuple[str, ...]) -> None:
        if not rules:
            return
        array = (llama_cpp.llama_model_kv_override * (len(rules) + 1))()
        for entry, rule in zip(array, rules, strict=False):
            _fill_override(entry, rule)
        self._kept.append(array)
        self.struct.kv_overrides = array


def _without_vocabulary(facts: VocabularyFacts | None) -> tuple[str, ...]:
    """What makes the engine take a file for one that has no vocabulary but only tokens."""
    if facts is None:
        return ()
    return ("tokenizer.ggml.model=str:no_vocab", f"{facts.architecture}.vocab_size=int:{facts.n_tokens}")


def _fill_override(entry: Any, rule: str) -> None:
    """Fill one `llama_model_kv_override` from `KEY=TYPE:VALUE`."""
    match = re.fullmatch(r"([^=]{1,127})=(int|float|bool|str):(.*)", rule, re.DOTALL)
    if match is None:
        raise UnusableParameter(f"override-kv: {rule!r} is not KEY=TYPE:VALUE with TYPE int, float, bool or str")
    key, kind, value = match.groups()
    entry.key = key.encode()
    try:
        if kind == "int":
            entry.tag, entry.value.val_i64 = 0, int(value)
        elif kind == "float":
            entry.tag, entry.value.val_f64 = 1, float(value)
        elif kind == "bool":
            entry.tag, entry.value.val_bool = 2, {"true": True, "false": False}[value]
        else:
            entry.tag, entry.value.val_str = 3, value.encode()
    except (ValueError, KeyError) as error:
        raise UnusableParameter(f"override-kv: {value!r} is no {kind} that fits") from error


def _load_mode(parameters: LoadParameters) -> int:
    if parameters.mlock:
        return int(llama_cpp.LLAMA_LOAD_MODE_MMAP_MLOCK if parameters.mmap else llama_cpp.LLAMA_LOAD_MODE_MLOCK)
    return int(llama_cpp.LLAMA_LOAD_MODE_MMAP if parameters.mmap else llama_cpp.LLAMA_LOAD_MODE_NONE)


def _named(table: dict[str, int], name: str, option: str) -> int:
    try:
        return table[name]
    except KeyError:
        raise UnusableParameter(f"{option}: {name!r} is none of {', '.join(filter(None, table))}") from None


def context_struct(parameters: LoadParameters) -> Any:
    """`struct llama_context_params` with all that `parameters` alone decides; the caller adds sizes and threads."""
    struct = llama_cpp.llama_context_default_params()
    struct.rope_scaling_type = _named(_ROPE_SCALINGS, parameters.rope_scaling, "rope-scaling")
    struct.rope_freq_base = parameters.rope_freq_base
    struct.rope_freq_scale = parameters.rope_freq_scale
    struct.yarn_ext_factor = parameters.yarn_ext_factor
    struct.yarn_attn_factor = parameters.yarn_attn_factor
    struct.yarn_beta_fast = parameters.yarn_beta_fast
    struct.yarn_beta_slow = parameters.yarn_beta_slow
    struct.yarn_orig_ctx = parameters.yarn_orig_ctx
    struct.pooling_type = _named(_POOLINGS, parameters.pooling, "pooling")
    struct.flash_attn_type = _named(_FLASH_ATTENTION, parameters.flash_attn, "flash-attn")
    struct.type_k = _named(CACHE_TYPES, parameters.cache_type_k, "cache-type-k")
    struct.type_v = _named(CACHE_TYPES, parameters.cache_type_v, "cache-type-v")
    struct.swa_full = parameters.swa_full
    struct.kv_unified = True
    struct.no_perf = True
    return struct

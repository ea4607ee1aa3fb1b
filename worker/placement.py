"""Sizes that a load leaves to the worker: context, sequences, threads. Pure arithmetic over facts."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from protocol.load import LoadParameters

CPU_CONTEXT = 32 * 1024
GPU_CONTEXT = 64 * 1024
EMBEDDING_CONTEXT = 8 * 1024
"""Embeddings compute a whole input at once, which takes memory in proportion."""
LEAST_CONTEXT = 2048
KV_MEMORY_SHARE = 0.5
"""Of the memory that is available, for a context whose size nobody asked for."""
IDLE_SEQUENCES = 16
"""Finished sequences kept for the prompts to come, beyond the slots, where they cost cells alone."""
IDLE_STATES = 4
"""The same where each has a state or a window of its own."""
IDLE_CELLS = 0
"""Cells that idle sequences may hold on a CPU while others run: every prompt token pays for each of them."""
SHELF_SHARE = 0.05
SHELF_MOST = 1 << 30
"""The shelf for idle sequences: this share of the memory available, at most so many bytes."""
CONTEXT_UNIT = 256
"""The engine rounds contexts up to a multiple of this."""
MAX_SEQUENCES = 256
"""The engine's limit."""


def default_context(n_ctx_train: int, bytes_per_token: int, available: int, most: int) -> int:
    """Cells of the KV cache when none were asked for.

    As many as the model was trained for, at most `most`, and fewer where memory is short.
    """
    cells = min(n_ctx_train or most, most)
    affordable = int(KV_MEMORY_SHARE * available) // max(1, bytes_per_token)
    while cells > LEAST_CONTEXT and cells > affordable:
        cells //= 2
    return max(cells, min(LEAST_CONTEXT, n_ctx_train or LEAST_CONTEXT))


def sequence_count(slots: int, has_states: bool) -> int:
    """Sequences that the engine must tell apart: a power of two, for it divides its batches evenly among them."""
    wanted = slots + (IDLE_STATES if has_states else max(IDLE_SEQUENCES, slots))
    return min(MAX_SEQUENCES, 1 << (wanted - 1).bit_length())


def batch_sizes(parameters: LoadParameters, n_ctx: int) -> tuple[int, int]:
    """Tokens of a step, and of the part of it that is computed at once.

    Where a whole input must be computed at once (embeddings), both are the context, as the engine rounds it.
    """
    if parameters.embeddings:
        rounded = -(-n_ctx // CONTEXT_UNIT) * CONTEXT_UNIT
        return rounded, rounded
    batch = max(1, min(parameters.batch_size, n_ctx))
    return batch, max(1, min(parameters.ubatch_size, batch))


def shelf_bytes(available: int, wanted: int = -1) -> int:
    """Bytes for states of idle sequences outside of the KV cache: as many as wanted, or a choice where that is -1."""
    if wanted >= 0:
        return wanted
    return min(SHELF_MOST, int(SHELF_SHARE * available))


def available_memory() -> int:
    """Bytes that this process may still take: the machine's, or its control group's if that is less."""
    available = int(psutil.virtual_memory().available)
    limit, used = _cgroup_number("memory.max"), _cgroup_number("memory.current")
    return min(available, max(0, limit - used)) if limit is not None and used is not None else available


def default_threads() -> int:
    """Physical cores, or fewer where affinity or a quota allows fewer: spinning threads must not wait for a core."""
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    allowed = [cores, len(os.sched_getaffinity(0))]
    quota = _cgroup_text("cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        allowed.append(max(1, int(quota[0]) // int(quota[1])))
    return max(1, min(allowed))


def _cgroup_text(name: str) -> str:
    try:
        group = Path("/proc/self/cgroup").read_text().strip().rpartition(":")[2].lstrip("/")
        return (Path("/sys/fs/cgroup") / group / name).read_text().strip()
    except OSError:
        return ""


def _cgroup_number(name: str) -> int | None:
    text = _cgroup_text(name)
    return int(text) if text.isdecimal() else None

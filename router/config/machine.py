"""What this machine offers: cores and memory within the limits of its cgroup, and the engine's GPU backends."""

from __future__ import annotations

import importlib.metadata
import os
import re
from pathlib import Path

import psutil
from msgspec import Struct

CGROUPS = Path("/sys/fs/cgroup")
RESERVE_BYTES = 1 << 30
RESERVE_FRACTION = 10

_LIBRARY = re.compile(r"(?:lib)?ggml-([a-z]+)(?:-[^.]*)?\.(?:so|dylib|dll)")
_GPU_BACKENDS = {
    "cuda": ("CUDA0", ("/dev/nvidiactl", "/dev/dxg")),
    "hip": ("ROCm0", ("/dev/kfd", "/dev/dxg")),
    "musa": ("MUSA0", ("/dev/mtgpu.0",)),
    "cann": ("CANN0", ("/dev/davinci_manager",)),
    "sycl": ("SYCL0", ("/dev/dri", "/dev/dxg")),
    "vulkan": ("Vulkan0", ("/dev/dri", "/dev/dxg", "/dev/nvidiactl")),
    "openvino": ("OPENVINO0", ("/dev/dri",)),
    "metal": ("MTL0", ()),
}
"""Backend -> the name of its first device, and device files one of which must exist (none: always there)."""


class Machine(Struct, frozen=True):
    """Cores and bytes that the gateway may use. `memory` is None where it cannot be read. `gpu` is a device or ""."""

    threads: int
    memory: int | None
    backends: tuple[str, ...] = ("cpu",)
    gpu: str = ""

    @property
    def budget(self) -> tuple[tuple[str, int], ...]:
        """What models may take of each device when nothing else is said: all but a reserve for everything else."""
        if self.memory is None:
            return ()
        reserve = max(RESERVE_BYTES, self.memory // RESERVE_FRACTION)
        return (("host", max(self.memory - reserve, self.memory // 2)),)


def look() -> Machine:
    """Look at the machine. Nothing is loaded for it: GPU backends are found by the engine's files."""
    backends = installed_backends()
    return Machine(usable_threads(), usable_memory(), backends, gpu_device(backends))


def usable_threads() -> int:
    """Physical cores, but no more than the affinity or the cgroup's quota allows; at least one."""
    limits = [psutil.cpu_count(logical=False) or os.cpu_count() or 1]
    if hasattr(os, "sched_getaffinity"):
        limits.append(len(os.sched_getaffinity(0)))
    limits.extend(quota for folder in cgroup_folders() if (quota := cpu_quota(folder)) is not None)
    return max(1, min(limits))


def usable_memory() -> int | None:
    """Bytes of main memory that are free for models now, at most what the cgroups still allow."""
    try:
        limits = [psutil.virtual_memory().available]
    except (OSError, RuntimeError):
        return None
    limits.extend(room for folder in cgroup_folders() if (room := memory_room(folder)) is not None)
    return min(limits)


def cgroup_folders(root: Path = CGROUPS, membership: Path = Path("/proc/self/cgroup")) -> tuple[Path, ...]:
    """The folders of this process's unified cgroup, up to the root: each of them may limit it."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return ()
    for line in lines:
        hierarchy, _, rest = line.partition(":")
        if hierarchy == "0":
            folder = root / rest.partition(":")[2].lstrip("/")
            chain = (folder, *folder.parents)
            return tuple(path for path in chain if path == root or root in path.parents)
    return ()


def cpu_quota(folder: Path) -> int | None:
    """Whole cores that a cgroup's quota is worth, rounded up; None without a quota."""
    words = _read_words(folder / "cpu.max")
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or words[1] == "0":
        return None
    return max(1, -(-int(words[0]) // int(words[1])))


def memory_room(folder: Path) -> int | None:
    """Bytes that a cgroup may still take, reclaimable page cache counted as free; None without a limit."""
    limit = _read_words(folder / "memory.max")
    if len(limit) != 1 or not limit[0].isdigit():
        return None
    current = _read_words(folder / "memory.current")
    used = int(current[0]) if len(current) == 1 and current[0].isdigit() else 0
    words = _read_words(folder / "memory.stat")
    statistics = dict(zip(words[::2], words[1::2], strict=False))
    reclaimable = sum(int(statistics.get(name, "0")) for name in ("inactive_file", "active_file"))
    return max(0, int(limit[0]) - max(0, used - reclaimable))


def installed_backends() -> tuple[str, ...]:
    """Compute backends that llama-cpp-python was built with, `cpu` first, by the names of its libraries."""
    override = os.environ.get("LLAMA_CPP_LIB_PATH")
    try:
        if override:
            names = os.listdir(override)
        else:
            names = [file.name for file in importlib.metadata.files("llama-cpp-python") or ()]
    except (OSError, importlib.metadata.PackageNotFoundError):
        names = []
    found = {match[1] for name in names if (match := _LIBRARY.match(name))}
    return ("cpu", *sorted(found - {"cpu", "base"}))


def gpu_device(backends: tuple[str, ...]) -> str:
    """The first GPU that an installed backend could drive here, "" if there is none."""
    for backend, (device, files) in _GPU_BACKENDS.items():
        if backend in backends and (not files or any(os.path.exists(file) for file in files)):
            return device
    return ""


def _read_words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []

"""What of the router's environment a child may see: an allow-list, because secrets live in environments too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_NAMES = frozenset({"PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "LLAMA_CPP_LIB_PATH"})
_PREFIXES = (
    "CUDA_",
    "NVIDIA_",
    "HIP_",
    "ROCR_",
    "HSA_",
    "GGML_",
    "ONEAPI_",
    "ZE_",
    "VK_",
    "ASCEND_",
    "OMP_",
    "GOMP_",
)
_DOWNLOADER_NAMES = frozenset(
    {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CACHE_HOME"}
)
_TOKENS = frozenset({"HF_TOKEN"})

SPIN_COUNT = "20000"
"""Rounds that an OpenMP thread spins at a barrier before it sleeps.

The library's own default lets two models that compute at once destroy one another; a passive wait policy costs a model
that is alone a third of its speed. This bound costs nothing alone and keeps a contended step short.
"""


def worker_environment(own: Mapping[str, str], extra: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """The environment of a worker. `extra` are the pairs of its preset, which win."""
    chosen = {name: value for name, value in own.items() if name in _NAMES or name.startswith(_PREFIXES)}
    chosen.update(extra)
    if "OMP_WAIT_POLICY" not in chosen:
        chosen.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
    return chosen


def downloader_environment(own: Mapping[str, str]) -> dict[str, str]:
    """The environment of the downloader: the hub's settings and proxies besides; the token goes another way."""
    chosen = {name: value for name, value in own.items() if name in _NAMES}
    for name, value in own.items():
        if (name.startswith("HF_") and name not in _TOKENS) or name.upper() in _DOWNLOADER_NAMES:
            chosen[name] = value
    return chosen

"""How the gateway treats one model, and what a request to it starts from: everything beside its load parameters."""

from __future__ import annotations

from msgspec import Struct

from protocol.sampling import SamplingParameters


class RequestDefaults(Struct, frozen=True, omit_defaults=True):
    """What a request to this name starts from; each field of the request replaces the one here."""

    sampling: SamplingParameters = SamplingParameters()
    max_tokens: int = -1
    n_keep: int = 0
    stop: tuple[str, ...] = ()
    cache_prompt: bool = True
    cache_reuse: int = 0
    chat_template: str = ""
    template_kwargs_json: bytes = b"{}"
    reasoning_format: str = "auto"
    reasoning_effort: str = ""
    reasoning_budget: int = -1
    enable_thinking: bool | None = None
    embd_normalize: int = 2


class Traits(Struct, frozen=True, omit_defaults=True):
    """Treatment of one name. Times in seconds, sizes in bytes; 0 means never or none."""

    pin: bool = False
    priority: int = 0
    hidden: bool = False
    home: bool = False
    """Loaded again when nothing runs or waits."""
    load_on_startup: bool = False
    stop_timeout: float = 10.0
    sleep_idle: float = 0.0
    unload_idle: float = 0.0
    max_memory: int = 0
    recycle_after: int = 0
    queue_limit: int = 0
    wait_limit: float = 0.0
    dedup_cache_models: bool = False

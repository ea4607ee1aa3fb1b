"""Settings of the gateway as a whole. Those of a model are in `traits`, `LoadParameters` and `RequestDefaults`."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from router.scheduling.model import Policy


class Settings(Struct, frozen=True):
    """Everything that is not about one model. Times are seconds, sizes bytes; 0 means none or never."""

    # Where it listens
    host: tuple[str, ...] = ("127.0.0.1",)
    """Addresses; one that ends in `.sock` is a unix socket."""
    port: int = 8080
    also_listen: tuple[str, ...] = ()
    """Further `host:port` pairs or socket paths, such as Ollama's port."""
    api_prefix: str = ""
    ssl_key_file: str = ""
    ssl_cert_file: str = ""

    # Who may do what
    api_keys: tuple[str, ...] = ()
    api_key_files: tuple[str, ...] = ()
    """Files of keys, with or without scopes."""
    insecure: bool = False
    cors_origins: tuple[str, ...] = ()
    """Empty: loopback origins and app schemes; `*`: any."""
    public_metrics: bool = False
    body_limit: int = 64 << 20
    media_urls: bool = False
    """Whether images behind public addresses are fetched."""
    connection_limit: int = 2_048

    # Which models there are
    models_dir: str = ""
    models_preset: str = ""
    hf_cache: bool = True
    listed: tuple[str, ...] = ("presets", "dir", "cache")
    default_model: str = ""
    autoload: bool = True

    # Residency
    models_max: int = 0
    memory_budget: tuple[tuple[str, int], ...] | None = None
    spare_workers: int | None = None
    max_swap_wait: float | None = None
    drain_timeout: float = 30.0
    min_residency: float = 0.0
    queue_limit: int = 512
    wait_limit: float = 0.0
    threads_total: int = 0
    wedge_after: float = 60.0
    cooldown_failures: int = 5
    cooldown: float = 300.0
    kv_keep: int = 0

    # Requests and streams
    request_timeout: float = 0.0
    early_headers_ms: float = 10_000.0
    sse_ping_interval: float = 30.0
    stream_ring: int = 4 << 20
    streams_total: int = 256 << 20
    stream_detached_seconds: float = 300.0
    slots_endpoint: bool = True
    ui: bool = True

    # Downloads
    downloads_parallel: int = 2
    download_rate: int = 0
    download_stall_timeout: float = 60.0
    """A job that receives nothing for so long is started again."""
    download_space_margin: int = 256 << 20
    """Bytes that a download leaves free."""
    hf_token: str = ""
    offline: bool = False

    # The process
    shutdown_delay: float = 0.0
    state_dir: str = ""
    runtime_dir: str = ""
    log_format: str = "auto"
    """`auto`, `console` or `json`; automatic is JSON when standard error is no terminal."""
    log_level: str = "info"
    log_prompts: bool = False

    def __repr__(self) -> str:
        """Without the secrets, so that no log or traceback shows them."""
        hidden = ("api_keys", "hf_token")
        shown = (f"{name}={'***' if name in hidden else getattr(self, name)!r}" for name in self.__struct_fields__)
        return f"Settings({', '.join(shown)})"

    def policy(self, budget: tuple[tuple[str, int], ...], threads: int, spare_workers: int) -> Policy:
        """The scheduler's part, with what was left to be chosen filled in."""
        return Policy(
            models_max=self.models_max,
            budget=budget,
            autoload=self.autoload,
            spare_workers=spare_workers,
            max_swap_wait=self.max_swap_wait,
            drain_timeout=self.drain_timeout,
            min_residency=self.min_residency,
            queue_limit=self.queue_limit,
            wait_limit=self.wait_limit,
            threads=threads,
            wedge_after=self.wedge_after,
            cooldown_failures=self.cooldown_failures,
            cooldown=self.cooldown,
        )


def state_folder(settings: Settings) -> Path:
    """Where measurements, made keys and kept state live: `--state-dir`, systemd's folder, or the user's."""
    chosen = settings.state_dir or os.environ.get("STATE_DIRECTORY", "").split(":")[0]
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(base) / "llamaherd"


def runtime_folder(settings: Settings) -> Path:
    """Where sockets live; the folder is made, with mode 0700, by whoever binds them."""
    chosen = settings.runtime_dir or os.environ.get("RUNTIME_DIRECTORY", "").split(":")[0]
    if chosen:
        return Path(chosen)
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and os.access(base, os.W_OK):
        return Path(base) / f"llamaherd-{os.getpid()}"
    return Path(os.environ.get("TMPDIR") or "/tmp") / f"llamaherd-{os.getuid()}-{os.getpid()}"

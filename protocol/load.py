"""What a worker loads, and what it says about it."""

from __future__ import annotations

from msgspec import Struct

from protocol.errors import WireError


class AdapterSpec(Struct, frozen=True, omit_defaults=True):
    """One LoRA adapter file and its default scale."""

    path: str
    scale: float = 1.0


class DraftSpec(Struct, frozen=True, omit_defaults=True):
    """Speculative decoding. `kind` is `off`, `lookup` (prompt lookup) or `model` (a draft GGUF)."""

    kind: str = "off"
    model_path: str = ""
    n_max: int = 8
    n_min: int = 1
    p_min: float = 0.6


class LoadParameters(Struct, frozen=True, omit_defaults=True):
    """Everything a model, its context and its projector are made from: the matter of the load key.

    Names are llama-server's. Sizes are tokens where nothing else is said; 0 means "choose".
    """

    model_path: str
    mmproj_path: str = ""
    ctx_size: int = 0
    """Cells of the unified KV cache, shared by all slots."""
    slots: int = 4
    batch_size: int = 2048
    ubatch_size: int = 512
    n_gpu_layers: int = -1
    """Layers placed on a GPU; -1 = all that fit."""
    devices: tuple[str, ...] = ()
    split_mode: str = "layer"
    tensor_split: tuple[float, ...] = ()
    main_gpu: int = 0
    n_cpu_moe: int = 0
    override_tensor: tuple[str, ...] = ()
    flash_attn: str = "auto"
    cache_type_k: str = "f16"
    cache_type_v: str = "f16"
    mlock: bool = False
    mmap: bool = True
    prewarm: bool = False
    swa_full: bool = False
    rope_scaling: str = ""
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    yarn_ext_factor: float = -1.0
    yarn_attn_factor: float = -1.0
    yarn_beta_fast: float = -1.0
    yarn_beta_slow: float = -1.0
    yarn_orig_ctx: int = 0
    embeddings: bool = False
    pooling: str = ""
    """`none mean cls last rank`, or empty for the file's own."""
    adapters: tuple[AdapterSpec, ...] = ()
    control_vectors: tuple[AdapterSpec, ...] = ()
    draft: DraftSpec = DraftSpec()
    override_kv: tuple[str, ...] = ()
    rpc: tuple[str, ...] = ()
    """Addresses of llama.cpp RPC servers."""
    control_vector_layers: tuple[int, int] = (0, 0)
    """First and last layer that control vectors apply to; zeros = all."""


class WorkerSettings(Struct, frozen=True, omit_defaults=True):
    """How a worker runs what it loaded; no part of the load key."""

    threads: int = 0
    """Decode threads when alone on the machine; 0 = choose."""
    threads_batch: int = 0
    step_budget_ms: float = 100.0
    context_shift: bool = False
    cache_prompt: bool = True
    cache_reuse: int = 0
    kv_keep_dir: str = ""
    """Folder of this load key's kept state; empty = keep none."""
    kv_keep_bytes: int = 0
    load_key: str = ""
    slot_save_path: str = ""
    chat_template: str = ""
    """Overrides the file's own template."""
    media_limit_bytes: int = 64 << 20
    prepare_deadline_s: float = 30.0
    media_cache_bytes: int = 256 << 20
    """Encoded images and sounds that are kept."""
    shelf_bytes: int = -1
    """Memory for states of idle sequences beside the KV cache; -1 = choose."""


class VocabularyFacts(Struct, frozen=True, omit_defaults=True):
    """What the header of a model file says of its vocabulary: enough to load the weights apart from it.

    `n_tokens` 0 = not known.
    """

    architecture: str = ""
    n_tokens: int = 0


class Load(Struct, frozen=True, tag="load", omit_defaults=True):
    """Load a model. Answered by `UpdateStatus(loading)`, then `Loaded` and `UpdateStatus(ready)`, or by `Dying`."""

    name: str
    parameters: LoadParameters
    settings: WorkerSettings = WorkerSettings()
    vocabulary: VocabularyFacts = VocabularyFacts()


class Device(Struct, frozen=True, omit_defaults=True):
    """A compute device as the engine sees it. Memory in bytes."""

    name: str
    kind: str
    description: str = ""
    memory_total: int = 0
    memory_free: int = 0


class ModelInfo(Struct, frozen=True, omit_defaults=True):
    """Facts of a loaded model. `size` in bytes, `n_ctx` and `n_ctx_train` in tokens."""

    architecture: str = ""
    description: str = ""
    ftype: str = ""
    vocab_type: int = 0
    n_vocab: int = 0
    n_ctx: int = 0
    n_ctx_slot: int = 0
    n_ctx_train: int = 0
    n_embd: int = 0
    n_params: int = 0
    size: int = 0
    slots: int = 0
    chat_template: str = ""
    chat_template_tool_use: str = ""
    bos_token: str = ""
    eos_token: str = ""
    input_modalities: tuple[str, ...] = ("text",)
    output_modalities: tuple[str, ...] = ("text",)
    pooling: str = ""
    has_encoder: bool = False
    has_fim: bool = False
    devices: tuple[Device, ...] = ()
    engine: str = ""
    """Build of llama.cpp and the bindings."""
    recommended_sampling_json: bytes = b"{}"


class Loaded(Struct, frozen=True, tag="loaded", omit_defaults=True):
    """Sent once after each load or wakeup, before the `UpdateStatus(ready)` that it belongs to."""

    name: str
    info: ModelInfo


class Dying(Struct, frozen=True, tag="dying", omit_defaults=True):
    """The last frame of a child that ends by itself; the exit of its process confirms it."""

    reason: WireError
    exit_code: int

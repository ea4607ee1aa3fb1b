"""Predicts the memory of a model that was never run, per device, from its header and its load parameters.

Measurements replace a prediction as soon as there are any; until then it must not be too small by much, since admission
believes it, nor so large that a model that fits is refused. What a worker's caches may grow to is therefore told apart
and not reserved: they begin empty, and so does the first measurement; what they hold is charged as it is measured.
"""

from __future__ import annotations

from msgspec import Struct

from protocol.load import LoadParameters, WorkerSettings
from router.config.facts import ModelFacts
from router.config.ggml import CACHE_TYPES
from router.config.projector import projector_compute_bytes
from router.scheduling.model import Need

HOST = "host"

PROCESS_BYTES = 48 << 20
"""Private memory of a worker with the engine imported and no model."""
VOCABULARY_BYTES_PER_TOKEN = 250
"""The model's own vocabulary, and the second one that serves while the weights sleep."""
CPU_CONTEXT = 32_768
GPU_CONTEXT = 65_536
EMBEDDING_CONTEXT = 8_192
"""Embeddings compute a whole input at once, so that memory grows with the context."""
IDLE_SEQUENCES = 16
IDLE_STATES = 4
MAX_SEQUENCES = 256
"""How many finished sequences workers keep, beyond their slots."""
SHELF_SHARE = 0.05
SHELF_MOST = 1 << 30
"""What workers choose for the states of idle sequences: this share of the free memory, at most so many bytes."""
CONTEXT_STEP = 256
WINDOW_PADDING = 256


class Prediction(Struct, frozen=True):
    """Bytes on one device, apart by what they are for."""

    device: str
    weights: int
    context: int
    compute: int
    shared: tuple[tuple[str, int], ...] = ()
    """The part of `weights` that other workers of the same file share, per (dev, inode)."""
    caches: int = 0
    """What the worker may come to keep beyond all that: states of idle sequences, encoded media. A limit, no need."""

    @property
    def total(self) -> int:
        return self.weights + self.context + self.compute

    def need(self) -> Need:
        mapped = sum(size for _, size in self.shared)
        return Need(self.device, self.total - mapped, self.shared)


def kv_bytes(facts: ModelFacts, parameters: LoadParameters, ctx_size: int) -> tuple[int, ...]:
    """Bytes of the KV cache (or recurrent state) that each layer keeps for `ctx_size` cells and all slots.

    Encoders (attention to both sides) keep none.
    """
    if not facts.causal:
        return (0,) * facts.n_layer
    k_block, k_size = CACHE_TYPES[parameters.cache_type_k]
    v_block, v_size = CACHE_TYPES[parameters.cache_type_v]
    cells = _padded(ctx_size, CONTEXT_STEP)
    windowed = cells
    if not parameters.swa_full:
        wanted = facts.window * sequences(facts, parameters) + parameters.ubatch_size
        windowed = min(cells, _padded(wanted, WINDOW_PADDING))
    state = 0
    if facts.recurrence is not None:
        state = 4 * sequences(facts, parameters) * (facts.recurrence.convolution + facts.recurrence.state)
    sizes: list[int] = []
    for heads, sliding in zip(facts.kv_heads, facts.sliding, strict=True):
        if not heads:
            sizes.append(state)
            continue
        here = windowed if sliding else cells
        if facts.latent_kv:
            sizes.append(here * facts.latent_kv * k_size // k_block)
        else:
            k = heads * facts.key_length * k_size // k_block
            v = heads * facts.value_length * v_size // v_block
            sizes.append(here * (k + v))
    return tuple(sizes)


def sequences(facts: ModelFacts, parameters: LoadParameters) -> int:
    """Sequences that a worker keeps apart: its slots and some finished ones, a power of two.

    Fewer finished ones are kept where each has a state or a window of its own.
    """
    stateful = facts.recurrence is not None or facts.window > 0
    wanted = parameters.slots + (IDLE_STATES if stateful else max(IDLE_SEQUENCES, parameters.slots))
    return min(MAX_SEQUENCES, 1 << (wanted - 1).bit_length())


def compute_bytes(facts: ModelFacts, parameters: LoadParameters, ctx_size: int) -> int:
    """Bytes of the compute buffer and of the logits.

    The engine reuses one buffer along the graph: it is as large as the wider of its two ends, a micro-batch in the
    layers (with the mask of attention, or without flash attention its scores) and the logits of the last one.
    """
    batch = ctx_size if parameters.embeddings else parameters.ubatch_size
    wide = 4 * facts.n_embd + 2 * facts.n_ff + facts.n_head * facts.key_length
    attention = 4 * facts.n_head if parameters.flash_attn == "off" else 2
    layers = batch * (4 * wide + attention * ctx_size)
    logits = 0 if parameters.embeddings else 4 * sequences(facts, parameters) * facts.n_vocab
    return max(layers, logits) * 11 // 10 + logits


def choose_context(facts: ModelFacts, parameters: LoadParameters, on_gpu: bool, usable: int | None) -> int:
    """The context size for a model whose preset names none: what it was trained for, within what fits.

    `usable` is bytes of the device that would hold the cache, None if unknown. Never below 2,048 cells: a model that
    does not fit even so is refused at admission, with the numbers.
    """
    limit = EMBEDDING_CONTEXT if parameters.embeddings else GPU_CONTEXT if on_gpu else CPU_CONTEXT
    size = min(facts.n_ctx_train or limit, limit)
    if usable is None:
        return size
    fixed = facts.tensor_bytes + PROCESS_BYTES + VOCABULARY_BYTES_PER_TOKEN * facts.n_vocab
    while size > 2_048:
        if fixed + sum(kv_bytes(facts, parameters, size)) + compute_bytes(facts, parameters, size) <= usable:
            break
        size = max(2_048, size // 2)
    return size


def predict(
    facts: ModelFacts,
    parameters: LoadParameters,
    *,
    projector: ModelFacts | None = None,
    draft: ModelFacts | None = None,
    gpu: str = "",
    settings: WorkerSettings = WorkerSettings(),
    free: int | None = None,
) -> tuple[Prediction, ...]:
    """Predict the memory of one worker. `gpu` names the device that offloaded layers go to, "" where there is none.
    `free` is what the machine has for a worker that chooses its share, None if unknown.

    Several GPUs are added up under the first one's name: how llama.cpp splits a model is known only after it is loaded.
    """
    ctx_size = parameters.ctx_size or choose_context(facts, parameters, bool(gpu), None)
    kv = kv_bytes(facts, parameters, ctx_size)
    compute = compute_bytes(facts, parameters, ctx_size)
    offloaded = _offloaded(facts, parameters) if gpu else 0
    first = facts.n_layer - min(offloaded, facts.n_layer)
    on_gpu = sum(facts.layer_bytes[first:]) - _experts_kept(facts, parameters, first)
    kv_on_gpu = sum(kv[first:])
    if offloaded > facts.n_layer:
        on_gpu += facts.output_bytes
    if projector is not None and gpu:
        on_gpu += projector.tensor_bytes
    if projector is not None:
        compute += projector_compute_bytes(projector)
    on_host = facts.tensor_bytes - min(on_gpu, facts.tensor_bytes)
    extra = PROCESS_BYTES + VOCABULARY_BYTES_PER_TOKEN * facts.n_vocab
    shared = _shared(facts, on_host) if parameters.mmap else ()
    weights = on_host
    if projector is not None and not gpu:
        weights += projector.tensor_bytes
    if draft is not None:
        weights += draft.tensor_bytes
        extra += sum(kv_bytes(draft, parameters, ctx_size)) + compute_bytes(draft, parameters, ctx_size)
    caches = 0 if parameters.embeddings else _shelf(settings, free)
    if projector is not None:
        caches += settings.media_cache_bytes
    host = Prediction(HOST, weights, sum(kv) - kv_on_gpu, extra + (0 if gpu else compute), shared, caches)
    if not gpu:
        return (host,)
    return (host, Prediction(gpu, on_gpu, kv_on_gpu, compute))


def _shelf(settings: WorkerSettings, free: int | None) -> int:
    if settings.shelf_bytes >= 0:
        return settings.shelf_bytes
    return SHELF_MOST if free is None else min(SHELF_MOST, int(SHELF_SHARE * free))


def _shared(facts: ModelFacts, on_host: int) -> tuple[tuple[str, int], ...]:
    """Mapped bytes per file; layers that went to a GPU are taken off each file in proportion."""
    if not facts.tensor_bytes:
        return ()
    return tuple(
        (identity.inode_text, size * on_host // facts.tensor_bytes) for _, identity, size in facts.files if size
    )


def _offloaded(facts: ModelFacts, parameters: LoadParameters) -> int:
    """Layers on the GPU; one more than the model has means the output head too."""
    everything = facts.n_layer + 1
    return everything if parameters.n_gpu_layers < 0 else min(parameters.n_gpu_layers, everything)


def _experts_kept(facts: ModelFacts, parameters: LoadParameters, first: int) -> int:
    """Bytes of expert weights in offloaded layers that `n-cpu-moe` keeps in main memory."""
    return sum(facts.expert_bytes[first : max(first, parameters.n_cpu_moe)])


def _padded(size: int, step: int) -> int:
    return -(-size // step) * step

"""What a model's header says about the model: the numbers that listing, context size and memory are worked out from."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeGuard, TypeVar

from msgspec import Struct

from router.config.errors import BadHeader
from router.config.ggml import FILE_TYPES, POOLING_TYPES
from router.config.header import Header, Tensor, Value, read_header

SHARD = re.compile(r"^(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf$")
MAX_LAYERS = 4_096
MAX_COUNT = (1 << 32) - 1
T = TypeVar("T", int, str)
_LAYER = re.compile(r"^blk\.(\d+)\.")
_EXPERTS = re.compile(r"_(?:ch)?exps\b")
_SAMPLING = "general.sampling."
_SAMPLING_FIELDS = {
    "temp": "temperature",
    "penalty_last_n": "repeat_last_n",
    "penalty_repeat": "repeat_penalty",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "xtc_probability": "xtc_probability",
    "xtc_threshold": "xtc_threshold",
    "mirostat": "mirostat",
    "mirostat_tau": "mirostat_tau",
    "mirostat_eta": "mirostat_eta",
}


class Identity(Struct, frozen=True, array_like=True, order=True):
    """One file as it is now: another file, or other contents, have another identity. `mtime` is nanoseconds."""

    dev: int
    inode: int
    size: int
    mtime: int

    @property
    def inode_text(self) -> str:
        return f"{self.dev}:{self.inode}"


class Recurrence(Struct, frozen=True):
    """State of recurrent layers: 32-bit floats of convolution and of state, per such layer and sequence."""

    convolution: int
    state: int


class ModelFacts(Struct, frozen=True, omit_defaults=True):
    """Facts of one model (all shards) or projector. Sizes in bytes, lengths in tokens or elements.

    The tuples have one value per layer: KV heads (0 for a layer without attention), whether the layer has a sliding
    window, bytes of tensors, and bytes of those that belong to mixture-of-experts weights.
    """

    architecture: str
    kind: str = "model"
    """`model`, `adapter` or `mmproj`."""
    name: str = ""
    n_ctx_train: int = 0
    n_embd: int = 0
    n_vocab: int = 0
    n_ff: int = 0
    n_head: int = 0
    key_length: int = 0
    value_length: int = 0
    kv_heads: tuple[int, ...] = ()
    sliding: tuple[bool, ...] = ()
    window: int = 0
    latent_kv: int = 0
    """Elements per cell where attention is latent (MLA): one vector for all heads, and no V."""
    recurrence: Recurrence | None = None
    recurrent_layers: int = 0
    n_params: int = 0
    file_type: str = ""
    tensor_bytes: int = 0
    output_bytes: int = 0
    """Tensors outside the layers that go to the GPU with the last one: the output head."""
    layer_bytes: tuple[int, ...] = ()
    expert_bytes: tuple[int, ...] = ()
    files: tuple[tuple[str, Identity, int], ...] = ()
    """Each file: its path, identity, and the bytes of its tensors."""
    chat_template: str = ""
    pooling: str = ""
    causal: bool = True
    sampling: dict[str, int | float] = {}
    """Sampling values that the file recommends, by llama-server's names."""
    sees: bool = False
    hears: bool = False
    projector_type: str = ""
    projection: int = 0
    """Size of a projector's embeddings, as its header states it, ..."""
    projection_widths: tuple[int, ...] = ()
    """... and the sizes that the tensors of its projection have."""
    n_patches: int = 0
    """Patches of a picture of the size that a projector was made for."""

    @property
    def n_layer(self) -> int:
        return len(self.layer_bytes)

    def still_hold(self) -> bool:
        """Whether the files are those whose headers were read."""
        try:
            return all(identify(path) == identity for path, identity, _ in self.files)
        except OSError:
            return False


def shards(path: Path) -> tuple[Path, ...]:
    """All files of the model whose first shard is `path`; `path` alone if it is not split. Raises `BadHeader`."""
    match = SHARD.match(path.name)
    if match is None:
        return (path,)
    count = int(match["count"])
    if not 1 <= count <= 1_000:
        raise BadHeader(f"'{path.name}' claims {count} shards")
    paths = tuple(path.with_name(f"{match['stem']}-{n:05}-of-{match['count']}.gguf") for n in range(1, count + 1))
    missing = [shard.name for shard in paths if not shard.is_file()]
    if missing:
        raise BadHeader(f"shard missing: {', '.join(missing[:3])}")
    return paths


def identify(path: str | Path) -> Identity:
    """The identity of a file, links followed. Raises `OSError`."""
    information = os.stat(path)
    return Identity(information.st_dev, information.st_ino, information.st_size, information.st_mtime_ns)


def read_facts(path: str | Path) -> ModelFacts:
    """Read the header of a model and of its further shards. Raises `BadHeader`, or `OSError` for unreadable files."""
    paths = shards(Path(path))
    headers = tuple(read_header(shard, _wanted) for shard in paths)
    files = tuple(
        (str(shard), identify(shard), sum(tensor.size for tensor in header.tensors))
        for shard, header in zip(paths, headers, strict=True)
    )
    return derive(headers, files)


def derive(headers: tuple[Header, ...], files: tuple[tuple[str, Identity, int], ...] = ()) -> ModelFacts:
    """Facts from the headers of all shards, the first of which has the metadata. Raises `BadHeader`."""
    metadata = _Metadata(headers[0])
    architecture = metadata.text("general.architecture")
    if not architecture:
        raise BadHeader("the file names no architecture (general.architecture)")
    tensors = [tensor for header in headers for tensor in header.tensors]
    n_layer = metadata.integer("block_count")
    if not 0 <= n_layer <= MAX_LAYERS:
        raise BadHeader(f"the file claims {n_layer} layers")
    layers = [0] * n_layer
    experts = [0] * n_layer
    output = 0
    embeddings = 0
    for tensor in tensors:
        match = _LAYER.match(tensor.name)
        if match and int(match[1]) < n_layer:
            layers[int(match[1])] += tensor.size
            if _EXPERTS.search(tensor.name):
                experts[int(match[1])] += tensor.size
        elif tensor.name.startswith("output"):
            output += tensor.size
        elif tensor.name == "token_embd.weight":
            embeddings = tensor.size
    heads = metadata.per_layer("attention.head_count", n_layer)
    n_head = max(heads, default=0)
    n_embd = metadata.integer("embedding_length") or metadata.of_encoder("embedding_length", 0)
    head_size = n_embd // n_head if n_head else 0
    window = metadata.integer("attention.sliding_window")
    recurrence = _recurrence(metadata, n_embd, n_head)
    kv_heads = _kv_heads(metadata, heads, n_layer, recurrence is not None)
    return ModelFacts(
        architecture=architecture,
        kind=_kind(metadata, architecture),
        name=metadata.text("general.name"),
        n_ctx_train=metadata.integer("context_length"),
        n_embd=n_embd,
        n_vocab=metadata.length("tokenizer.ggml.tokens") or metadata.integer("vocab_size"),
        n_ff=max(
            metadata.per_layer("feed_forward_length", n_layer), default=metadata.of_encoder("feed_forward_length", 0)
        ),
        n_head=n_head,
        key_length=metadata.integer("attention.key_length") or head_size,
        value_length=metadata.integer("attention.value_length") or head_size,
        kv_heads=kv_heads,
        sliding=_sliding(metadata, architecture, n_layer, window),
        window=window,
        latent_kv=_latent(metadata),
        recurrence=recurrence,
        recurrent_layers=sum(1 for heads_here in kv_heads if not heads_here) if recurrence else 0,
        n_params=sum(tensor.elements for tensor in tensors),
        file_type=FILE_TYPES.get(metadata.integer("general.file_type", -1), ""),
        tensor_bytes=sum(tensor.size for tensor in tensors),
        # A head that is tied to the embeddings is copied to the GPU as well.
        output_bytes=output if output > embeddings // 4 else output + embeddings,
        layer_bytes=tuple(layers),
        expert_bytes=tuple(experts),
        files=files,
        chat_template=metadata.text("tokenizer.chat_template"),
        pooling=POOLING_TYPES.get(metadata.integer("pooling_type", -1), ""),
        causal=metadata.boolean("attention.causal", True),
        sampling=metadata.sampling(),
        sees=metadata.boolean("clip.has_vision_encoder", False),
        hears=metadata.boolean("clip.has_audio_encoder", False),
        projector_type=metadata.of_encoder("projector_type", ""),
        projection=metadata.of_encoder("projection_dim", 0),
        projection_widths=_projection_widths(tensors) if architecture == "clip" else (),
        n_patches=_patches(metadata),
    )


def _projection_widths(tensors: list[Tensor]) -> tuple[int, ...]:
    return tuple(sorted({size for tensor in tensors if tensor.name.startswith("mm.") for size in tensor.shape}))


def _patches(metadata: _Metadata) -> int:
    side, patch = metadata.integer("clip.vision.image_size"), metadata.integer("clip.vision.patch_size")
    return (side // patch) ** 2 if patch and side < 1 << 16 else 0


def _wanted(key: str) -> bool:
    return not key.startswith("tokenizer.") or key == "tokenizer.chat_template"


class _Metadata:
    """Metadata by type. A key without its architecture's prefix is looked up with it.

    A value of the wrong type, or one that no model can have, counts as absent.
    """

    def __init__(self, header: Header) -> None:
        self._header = header
        architecture = header.metadata.get("general.architecture", "")
        self.architecture = architecture if isinstance(architecture, str) else ""

    def get(self, key: str) -> Value | None:
        metadata = self._header.metadata
        return metadata.get(key, metadata.get(f"{self.architecture}.{key}"))

    def text(self, key: str) -> str:
        value = self.get(key)
        return value if isinstance(value, str) else ""

    def integer(self, key: str, default: int = 0) -> int:
        value = self.get(key)
        return value if _is_count(value) else default

    def boolean(self, key: str, default: bool) -> bool:
        value = self.get(key)
        return value if isinstance(value, bool) else default

    def of_encoder(self, key: str, default: T) -> T:
        """A value of a projector's encoders: of the one for images before the one for sounds."""
        for name in (f"clip.{key}", f"clip.vision.{key}", f"clip.audio.{key}"):
            value = self._header.metadata.get(name)
            if isinstance(value, type(default)) and not isinstance(value, bool):
                return value if isinstance(value, str) or _is_count(value) else default
        return default

    def per_layer(self, key: str, n_layer: int) -> tuple[int, ...]:
        """Values of a key that is one number for all layers, or an array of one per layer."""
        value = self.get(key)
        if isinstance(value, tuple):
            numbers = tuple(item if _is_count(item) else 0 for item in value)
            return (numbers + (0,) * n_layer)[:n_layer]
        return (value if _is_count(value) else 0,) * n_layer

    def length(self, key: str) -> int:
        return self._header.array_lengths.get(key, 0)

    def sampling(self) -> dict[str, int | float]:
        found: dict[str, int | float] = {}
        for theirs, ours in _SAMPLING_FIELDS.items():
            value = self._header.metadata.get(_SAMPLING + theirs)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found[ours] = value
        return found


def _is_count(value: Value | None) -> TypeGuard[int]:
    """Whether a value is a number that a model can have of anything: hostile ones must not reach arithmetic."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT


def _kind(metadata: _Metadata, architecture: str) -> str:
    declared = metadata.text("general.type")
    if declared in ("adapter", "mmproj"):
        return declared
    return "mmproj" if architecture == "clip" else "model"


def _kv_heads(metadata: _Metadata, heads: tuple[int, ...], n_layer: int, recurrent: bool) -> tuple[int, ...]:
    """KV heads per layer, 0 for layers that keep no KV cache of their own."""
    if metadata.get("attention.head_count_kv") is None:
        found = [0] * n_layer if recurrent else list(heads)
    else:
        found = list(metadata.per_layer("attention.head_count_kv", n_layer))
    interval = metadata.integer("full_attention_interval")
    if recurrent and interval > 1:
        found = [heads_here if (layer + 1) % interval == 0 else 0 for layer, heads_here in enumerate(found)]
    shared = metadata.integer("attention.shared_kv_layers")
    if 0 < shared < n_layer:
        found[n_layer - shared :] = [0] * shared
    return tuple(found)


# Period of the attention pattern where the file does not state it: the last layer of each period sees everything.
_SLIDING_PERIODS = {
    "gemma2": 2,
    "gemma3": 6,
    "gemma3n": 5,
    "gemma-embedding": 6,
    "gpt-oss": 2,
    "cohere2": 4,
    "olmo2": 4,
    "exaone4": 4,
    "exaone-moe": 4,
    "llama4": 4,
    "smallthinker": 4,
    "modern-bert": 3,
    "plamo3": 8,
    "phi3": 1,
}


def _sliding(metadata: _Metadata, architecture: str, n_layer: int, window: int) -> tuple[bool, ...]:
    """Which layers see only a window. Unknown patterns count as full attention: too much memory, never too little."""
    if not window:
        return (False,) * n_layer
    pattern = metadata.get("attention.sliding_window_pattern")
    if isinstance(pattern, tuple):
        flags = tuple(bool(item) for item in pattern)
        return (flags + (False,) * n_layer)[:n_layer]
    period = pattern if isinstance(pattern, int) and pattern > 0 else _SLIDING_PERIODS.get(architecture, 1)
    return tuple(layer % period < period - 1 for layer in range(n_layer))


def _latent(metadata: _Metadata) -> int:
    rank = metadata.integer("attention.kv_lora_rank")
    if not rank or not metadata.integer("attention.key_length_mla"):
        return 0
    return rank + metadata.integer("rope.dimension_count")


def _recurrence(metadata: _Metadata, n_embd: int, n_head: int) -> Recurrence | None:
    """The sizes of a recurrent layer's state, None for a model that has no such layers."""
    head_size = metadata.integer("wkv.head_size")
    if head_size:
        return Recurrence(metadata.integer("token_shift_count", 2) * n_embd, n_embd * head_size)
    cache = metadata.integer("shortconv.l_cache")
    if cache:
        return Recurrence(n_embd * (cache - 1), 0)
    kernel = metadata.integer("ssm.conv_kernel")
    delta = metadata.integer("kda.head_dim")
    if delta:
        return Recurrence(3 * (kernel - 1 if kernel else 3) * n_head * delta, delta * delta * n_head)
    inner = metadata.integer("ssm.inner_size")
    if not inner:
        return None
    state = metadata.integer("ssm.state_size")
    groups = metadata.integer("ssm.group_count")
    return Recurrence(max(0, kernel - 1) * (inner + 2 * groups * state), state * inner)

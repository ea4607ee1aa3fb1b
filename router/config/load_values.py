"""Values of options that say how a model is loaded. Every function raises `BadValue`."""

from __future__ import annotations

import re

from protocol.load import AdapterSpec
from router.config.errors import BadValue
from router.config.ggml import CACHE_TYPES
from router.config.values import boolean, choice, integer, number, path, words


def slots(value: str) -> int:
    """Slots; -1 means the default."""
    return 4 if value.strip() == "-1" else integer(1, 256)(value)


def threads(value: str) -> int:
    """Threads; 0, -1 and `auto` mean "choose"."""
    return 0 if value.strip() in ("auto", "-1", "0") else integer(1, 4096)(value)


ALL_LAYERS = 100_000


def gpu_layers(value: str) -> int:
    """Layers; `auto` (-1) means all that fit, `all` every one whether it fits or not."""
    word = value.strip().lower()
    if word in ("auto", "-1"):
        return -1
    if word in ("all", "-2"):
        return ALL_LAYERS
    return integer(0, ALL_LAYERS)(value)


def moe_layers(value: str) -> int:
    return ALL_LAYERS if boolean(value) else 0


def flash_attention(value: str) -> str:
    word = value.strip().lower()
    if word in ("auto", "-1"):
        return "auto"
    return "on" if boolean(word) else "off"


def cache_type(value: str) -> str:
    return choice(*CACHE_TYPES)(value.strip().lower())


def devices(value: str) -> tuple[str, ...]:
    found = words(value)
    if not found:
        raise BadValue("no device named")
    return found


def fractions(value: str) -> tuple[float, ...]:
    """Proportions, separated by commas or slashes."""
    return tuple(number(0)(item) for item in re.split(r"[,/]", value) if item.strip())


def rope_scale(value: str) -> float:
    """The context is stretched by this factor; the engine wants its inverse."""
    factor = number(0)(value)
    if not factor:
        raise BadValue("a scale of 0 has no meaning")
    return 1.0 / factor


def tensor_overrides(value: str) -> tuple[str, ...]:
    """`<pattern>=<buffer type>`, comma-separated."""
    found = words(value)
    for item in found:
        pattern, equals, buffer = item.partition("=")
        if not (pattern and equals and buffer):
            raise BadValue(f"'{item}' is not <tensor name pattern>=<buffer type>")
    return found


def kv_overrides(value: str) -> tuple[str, ...]:
    """`key=type:value`, comma-separated; the type is int, float, bool or str."""
    found = words(value)
    for item in found:
        key, _, typed = item.partition("=")
        kind, colon, _ = typed.partition(":")
        if not key or not colon or kind not in ("int", "float", "bool", "str"):
            raise BadValue(f"'{item}' is not KEY=TYPE:VALUE")
    return found


def adapters(value: str) -> tuple[AdapterSpec, ...]:
    return tuple(AdapterSpec(path(item)) for item in words(value))


def scaled_adapters(value: str) -> tuple[AdapterSpec, ...]:
    """`file:scale`, comma-separated."""
    found: list[AdapterSpec] = []
    for item in words(value):
        file, colon, scale = item.rpartition(":")
        if not colon:
            raise BadValue(f"'{item}' is not FILE:SCALE")
        found.append(AdapterSpec(path(file), number()(scale)))
    return tuple(found)


def layer_range(value: str) -> tuple[int, int]:
    """The first and the last layer."""
    numbers = [integer(1)(word) for word in value.replace(",", " ").split()]
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        raise BadValue(f"'{value}' is not a first and a last layer")
    return numbers[0], numbers[1]


def cache_ram(value: str) -> int:
    """MiB as bytes; -1 leaves the choice to the worker."""
    mib = integer(-1)(value)
    return mib << 20 if mib >= 0 else -1


_SPECULATION = {
    "none": "off",
    "draft": "model",
    "draft-simple": "model",
    "lookup": "lookup",
    "ngram-simple": "lookup",
    "ngram-cache": "lookup",
    "ngram-mod": "lookup",
    "ngram-map-k": "lookup",
    "ngram-map-k4v": "lookup",
}


def speculation(value: str) -> str:
    """Kinds of speculative decoding; all n-gram kinds are prompt lookup here."""
    kinds = {item: _SPECULATION.get(item) for item in words(value)}
    unknown = [item for item, kind in kinds.items() if kind is None]
    if unknown:
        raise BadValue(f"speculative decoding of type '{unknown[0]}' is not supported")
    found = {kind for kind in kinds.values() if kind is not None and kind != "off"}
    if len(found) > 1:
        raise BadValue("a draft model and prompt lookup cannot be combined")
    return found.pop() if found else "off"


def reranking(value: str) -> str:
    """The switch `--reranking` is rank pooling."""
    return "rank" if boolean(value) else ""


def pooling(value: str) -> str:
    return choice("", "none", "mean", "cls", "last", "rank")(value)


def load_mode(value: str) -> tuple[bool, bool]:
    """llama-server's loading modes as (mmap, mlock)."""
    modes = {
        "auto": (True, False),
        "none": (False, False),
        "mmap": (True, False),
        "mlock": (False, True),
        "mmap+mlock": (True, True),
    }
    if value.strip() not in modes:
        raise BadValue(f"'{value}' is not one of {', '.join(modes)}")
    return modes[value.strip()]

"""Turns the text of an option, from whatever place it came, into its value. Every function raises `BadValue`."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from pathlib import Path

from protocol.load import AdapterSpec
from protocol.sampling import Constraint, Grammar, JsonSchema
from router.config.errors import BadValue
from router.config.ggml import CACHE_TYPES

TRUE = ("on", "enabled", "true", "1", "yes")
FALSE = ("off", "disabled", "false", "0", "no")

_SIZE = re.compile(r"^(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?$", re.IGNORECASE)
_SIZE_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?$", re.IGNORECASE)
_DURATION_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

MAX_FILE_BYTES = 4 << 20


def text(value: str) -> str:
    return value


def boolean(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in TRUE:
        return True
    if lowered in FALSE:
        return False
    raise BadValue(f"'{value}' is neither on nor off")


def integer(low: int = -(1 << 31), high: int = (1 << 31) - 1) -> Callable[[str], int]:
    def parse(value: str) -> int:
        try:
            number = int(value.strip())
        except ValueError:
            raise BadValue(f"'{value}' is not a whole number") from None
        if not low <= number <= high:
            raise BadValue(f"{number} is not between {low} and {high}" if high < (1 << 31) - 1 else f"{number} < {low}")
        return number

    return parse


def number(low: float = -math.inf, high: float = math.inf) -> Callable[[str], float]:
    def parse(value: str) -> float:
        try:
            parsed = float(value.strip())
        except ValueError:
            raise BadValue(f"'{value}' is not a number") from None
        if math.isnan(parsed) or not low <= parsed <= high:
            raise BadValue(f"{value.strip()} is not between {low:g} and {high:g}")
        return parsed

    return parse


def choice(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value.strip() not in allowed:
            raise BadValue(f"'{value}' is not one of {', '.join(word or repr('') for word in allowed)}")
        return value.strip()

    return parse


def only(allowed: bool, why: str) -> Callable[[str], bool]:
    """A switch of which one position is how things are here anyway, and the other is not offered."""

    def parse(value: str) -> bool:
        if boolean(value) is not allowed:
            raise BadValue(why)
        return allowed

    return parse


def size(value: str) -> int:
    """Bytes: `8G`, `512MiB`, `1048576`. Units are powers of 1024."""
    match = _SIZE.match(value.strip())
    if match is None:
        raise BadValue(f"'{value}' is not a size such as 8G or 512M")
    return int(float(match[1]) * _SIZE_UNITS[match[2].lower()])


def duration(value: str) -> float:
    """Seconds: `30`, `1.5`, `250ms`, `5m`, `2h`."""
    match = _DURATION.match(value.strip())
    if match is None:
        raise BadValue(f"'{value}' is not a time such as 30, 250ms or 5m")
    return float(match[1]) * _DURATION_UNITS[(match[2] or "s").lower()]


def duration_or_auto(value: str) -> float | None:
    return None if value.strip() == "auto" else duration(value)


def idle(value: str) -> float:
    """Seconds of idleness, 0 = never; llama-server writes -1 for that."""
    return 0.0 if value.strip() == "-1" else duration(value)


def budget(value: str) -> tuple[tuple[str, int], ...] | None:
    """`auto`, `8G` for main memory, or one size per device: `host=8G,CUDA0=20G`."""
    if value.strip() == "auto":
        return None
    pairs: list[tuple[str, int]] = []
    for item in words(value):
        device, equals, amount = item.rpartition("=")
        pairs.append((device.strip() if equals else "host", size(amount)))
    if len(dict(pairs)) != len(pairs):
        raise BadValue(f"'{value}' names a device twice")
    return tuple(pairs)


def path(value: str) -> str:
    """An absolute path with `~` resolved. Whether it exists is checked where it is opened."""
    if not value:
        raise BadValue("the path is empty")
    return os.path.abspath(os.path.expanduser(value))


def file_text(value: str) -> str:
    """The contents of a small text file."""
    try:
        data = Path(path(value)).read_bytes()
        if len(data) > MAX_FILE_BYTES:
            raise BadValue(f"{value} is larger than {MAX_FILE_BYTES >> 20} MiB")
        return data.decode()
    except OSError as error:
        raise BadValue(f"cannot read {value}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadValue(f"{value} is not UTF-8 text") from None


def words(value: str) -> tuple[str, ...]:
    """Comma-separated words; empty ones are dropped."""
    return tuple(word.strip() for word in value.split(",") if word.strip())


def word_choice(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    def parse(value: str) -> tuple[str, ...]:
        found = words(value)
        for word in found:
            if word not in allowed:
                raise BadValue(f"'{word}' is not one of {', '.join(allowed)}")
        return found

    return parse


def secrets(value: str) -> tuple[str, ...]:
    """Comma-separated keys."""
    found = words(value)
    if not found:
        raise BadValue("the key is empty")
    return found


def paths(value: str) -> tuple[str, ...]:
    return (path(value),)


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


_SAMPLERS = {
    "penalties": "e",
    "dry": "d",
    "top_n_sigma": "s",
    "top_k": "k",
    "typ_p": "y",
    "top_p": "p",
    "min_p": "m",
    "xtc": "x",
    "temperature": "t",
    "infill": "i",
    "adaptive_p": "a",
}
_SAMPLER_NAMES = {
    **{name: name for name in _SAMPLERS},
    **{name.replace("_", "-"): name for name in _SAMPLERS},
    "temp": "temperature",
    "nucleus": "top_p",
    "typical_p": "typ_p",
    "typical-p": "typ_p",
    "typical": "typ_p",
    "typ": "typ_p",
}
_SAMPLER_LETTERS = {letter: name for name, letter in _SAMPLERS.items()}


def samplers(value: str) -> tuple[str, ...]:
    """Sampler names in order, separated by semicolons."""
    found = tuple(word.strip() for word in value.split(";") if word.strip())
    unknown = [word for word in found if word not in _SAMPLER_NAMES]
    if unknown:
        raise BadValue(f"'{unknown[0]}' is not a sampler; they are {', '.join(_SAMPLERS)}")
    return tuple(_SAMPLER_NAMES[word] for word in found)


def sampler_letters(value: str) -> tuple[str, ...]:
    unknown = [letter for letter in value.strip() if letter not in _SAMPLER_LETTERS]
    if unknown:
        raise BadValue(f"'{unknown[0]}' is not a sampler's letter; they are {''.join(_SAMPLER_LETTERS)}")
    return tuple(_SAMPLER_LETTERS[letter] for letter in value.strip())


def seed(value: str) -> int | None:
    """A seed; -1 means a random one."""
    parsed = integer(-1, (1 << 32) - 1)(value)
    return None if parsed in (-1, (1 << 32) - 1) else parsed


_BIAS = re.compile(r"^(\d+)([+-].+)$")


def logit_bias(value: str) -> tuple[tuple[int | str, float], ...]:
    """`token+bias` or `token-bias`, comma-separated."""
    found: list[tuple[int | str, float]] = []
    for item in words(value):
        match = _BIAS.match(item)
        if match is None:
            raise BadValue(f"'{item}' is not TOKEN_ID(+/-)BIAS")
        found.append((int(match[1]), number()(match[2])))
    return tuple(found)


def sequence_breaker(value: str) -> tuple[str, ...]:
    return () if value == "none" else (value.replace("\\n", "\n").replace("\\t", "\t"),)


def grammar(value: str) -> Constraint | None:
    return Grammar(value) if value.strip() else None


def grammar_file(value: str) -> Constraint | None:
    return grammar(file_text(value))


def json_schema(value: str) -> Constraint:
    return JsonSchema(json_object(value))


def json_schema_file(value: str) -> Constraint:
    return json_schema(file_text(value))


def json_object(value: str) -> bytes:
    """A JSON object, as compact JSON text."""
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise BadValue(f"not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise BadValue("not a JSON object")
    return json.dumps(parsed, ensure_ascii=False, separators=(",", ":")).encode()


def chat_template(value: str) -> str:
    """The text of a Jinja template. llama.cpp's built-in names are its C++ code and do not exist here."""
    if "{" not in value:
        raise BadValue(f"'{value}' is no Jinja text; llama.cpp's built-in template names are not supported")
    return value


def chat_template_file(value: str) -> str:
    return chat_template(file_text(value))


def thinking(value: str) -> bool | None:
    return None if value.strip().lower() == "auto" else boolean(value)


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


def yarn_context(value: str) -> int:
    return integer(0)(value)

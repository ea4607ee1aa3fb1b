"""Bodies become Structs once, at the edge: wrong types are refused with the path of the field."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from router.http.errors import ApiError, invalid

T = TypeVar("T")

_AT = re.compile(r"^(?P<what>.*) - at `(?:key in )?\$\.?(?P<path>.*)`$", re.DOTALL)


def decode(decoder: msgspec.json.Decoder[T], body: bytes) -> T:
    """Decode a JSON body. Raises a 400 `ApiError` that names the field, as in `messages[2].content`."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise located(error) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = "the request body is empty" if not body.strip() else f"the request body is not valid JSON: {error}"
        raise invalid(what) from error
    except RecursionError as error:
        raise invalid("the request body is nested too deeply") from error


def decode_part(decoder: msgspec.json.Decoder[T], raw: msgspec.Raw, path: str) -> T:
    """Decode a part of a body that was kept raw; `path` is where it stands."""
    try:
        return decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise located(error, path) from error
    except RecursionError as error:
        raise invalid(f"{path}: nested too deeply", path) from error


def located(error: msgspec.ValidationError, prefix: str = "") -> ApiError:
    """The 400 for a validation error, with the path that msgspec puts at the end of its text."""
    match = _AT.match(str(error))
    what = _lowered(str(error) if match is None else match["what"])
    inner = "" if match is None else match["path"]
    path = f"{prefix}.{inner}" if prefix and inner and not inner.startswith("[") else prefix + inner
    if not path:
        return invalid(f"the request body is invalid: {what}")
    return invalid(f"{path}: {what}", param=path)


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]

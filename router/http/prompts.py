"""llama-server's `prompt` field in all its forms: text, tokens, a mixture, several of them, text with media."""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta, Struct

from protocol.chat import AudioPart, ContentPart, ImagePart, MixedPrompt, Prompt, TextPrompt
from router.http.errors import invalid
from router.http.fields import INT32_MAX
from router.http.media import media_bytes

MAX_PROMPTS = 2048

Token = Annotated[int, Meta(ge=0, le=INT32_MAX)]


class MediaPrompt(Struct):
    """Text with markers, and the files that they stand for, in base64."""

    prompt_string: str
    multimodal_data: list[str] = []


Mixture = list[str | Token]
OnePrompt = str | MediaPrompt | Mixture
PromptField = str | MediaPrompt | list[str | Token | MediaPrompt | Mixture]
"""A list of tokens, alone or mixed with strings, is one prompt; a list without tokens is a list of prompts."""

_AUDIO = re.compile(rb"^(RIFF....WAVE|ID3|\xff[\xfb\xf3\xf2]|fLaC|OggS)", re.DOTALL)


def prompts(field: PromptField | None, name: str = "prompt") -> list[Prompt]:
    """The prompts that a field holds, at least one. Raises a 400 `ApiError`."""
    if field is None:
        raise invalid(f"'{name}' is required", name)
    if not isinstance(field, list):
        return [one_prompt(field, name)]
    if not field:
        raise invalid(f"'{name}' must not be empty", name)
    if any(isinstance(item, int) for item in field):
        return [MixedPrompt(_parts(field, name))]
    if len(field) > MAX_PROMPTS:
        raise invalid(f"{name}: at most {MAX_PROMPTS} prompts in one request, not {len(field)}", name)
    return [one_prompt(item, f"{name}[{index}]") for index, item in enumerate(field) if not isinstance(item, int)]


def one_prompt(item: str | MediaPrompt | Mixture, path: str) -> Prompt:
    if isinstance(item, str):
        return TextPrompt(item)
    if isinstance(item, MediaPrompt):
        media = tuple(
            media_part(data, f"{path}.multimodal_data[{index}]") for index, data in enumerate(item.multimodal_data)
        )
        return TextPrompt(item.prompt_string, media=media)
    if not item:
        raise invalid(f"{path}: must not be empty", path)
    return MixedPrompt(_parts(item, path))


def media_part(encoded: str, param: str) -> ContentPart:
    """Sound or image in base64, told apart by the first bytes of the file."""
    return file_part(media_bytes(encoded, param), param)


def file_part(data: bytes, param: str) -> ContentPart:
    if _AUDIO.match(data):
        return AudioPart(data, "wav" if data.startswith(b"RIFF") else "mp3", param)
    return ImagePart(data, param)


def _parts(items: list[str | Token | MediaPrompt | Mixture] | Mixture, path: str) -> tuple[str | tuple[int, ...], ...]:
    """Strings, and runs of tokens between them."""
    parts: list[str | tuple[int, ...]] = []
    run: list[int] = []
    for index, item in enumerate(items):
        if isinstance(item, int):
            run.append(item)
            continue
        if not isinstance(item, str):
            raise invalid(f"{path}[{index}]: expected a string or a token", f"{path}[{index}]")
        if run:
            parts.append(tuple(run))
            run = []
        parts.append(item)
    if run:
        parts.append(tuple(run))
    return tuple(parts)


def text_of(prompt: Prompt) -> str | None:
    """The text of a prompt that is nothing but text."""
    return prompt.text if isinstance(prompt, TextPrompt) and not prompt.media else None

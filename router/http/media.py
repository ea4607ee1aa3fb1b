"""Images and audio of a request: data URLs, bare base64, and addresses where these are fetched."""

from __future__ import annotations

import binascii
from collections.abc import Awaitable, Callable

import msgspec

from protocol.chat import AudioPart, ChatPrompt, ImagePart, Prompt, files_of
from router.config.model import Model
from router.http.errors import invalid

REMOTE = ("http://", "https://")
SCHEMES = (*REMOTE, "file://")

Fetch = Callable[[str, str], Awaitable[bytes]]
"""The file behind an address, which came in a field."""


NOT_FETCHED = "{param}: addresses are not fetched; send the file as a data: URL with base64"


class RemoteImage(ImagePart, frozen=True, tag="image"):
    """An image whose file is behind an address. Never sent to a worker."""

    url: str = ""


def image_part(url: str, param: str) -> ImagePart:
    """An image by its `data:` URL, by base64 alone, or by an address."""
    if url.lower().startswith(REMOTE):
        return RemoteImage(b"", param, url)
    return ImagePart(media_bytes(url, param), param)


async def with_files(prompt: ChatPrompt, fetch: Fetch) -> ChatPrompt:
    """The prompt with the files that were behind addresses. Raises a 400 `ApiError`."""
    messages = []
    for message in prompt.messages:
        if isinstance(message.content, tuple) and any(isinstance(part, RemoteImage) for part in message.content):
            parts = [
                ImagePart(await fetch(part.url, part.param), part.param) if isinstance(part, RemoteImage) else part
                for part in message.content
            ]
            message = msgspec.structs.replace(message, content=tuple(parts))
        messages.append(message)
    return msgspec.structs.replace(prompt, messages=tuple(messages))


def media_bytes(url: str, param: str) -> bytes:
    """The file behind a `data:` URL or a bare base64 string.

    Addresses are refused: the gateway opens no file on a client's word.
    """
    if url.lower().startswith(SCHEMES):
        raise invalid(NOT_FETCHED.format(param=param), param)
    encoded = url
    if url.startswith("data:"):
        head, comma, encoded = url.partition(",")
        if not comma or not head.endswith(";base64"):
            raise invalid(f"{param}: a data: URL must be base64 encoded", param)
    try:
        data = binascii.a2b_base64(encoded, strict_mode=False)
    except (binascii.Error, ValueError) as error:
        raise invalid(f"{param}: invalid base64", param) from error
    if not data:
        raise invalid(f"{param}: the file is empty", param)
    return data


def check_files(prompt: Prompt, model: Model) -> None:
    """Refuse what must not reach a worker. Raises a 400 `ApiError`."""
    check_modalities(prompt, model)
    for part in files_of(prompt):
        if isinstance(part, RemoteImage):
            raise invalid(NOT_FETCHED.format(param=part.param), part.param)


def check_modalities(prompt: Prompt, model: Model) -> None:
    """Refuse images and sounds for a model that is known to take none, before it is loaded for them."""
    if model.facts is None:
        return
    for part in files_of(prompt):
        kind, word = ("audio", "sounds") if isinstance(part, AudioPart) else ("image", "images")
        if kind not in model.input_modalities:
            words = f"{part.param}: the model '{model.id}' takes no {word}: it has no projector for them"
            raise invalid(words, part.param)

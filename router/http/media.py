"""Images and audio inside a JSON body: data URLs and bare base64."""

from __future__ import annotations

import binascii
from collections.abc import Iterator

from protocol.chat import AudioPart, ChatPrompt, ContentPart, Prompt, TextPart, TextPrompt
from router.config.model import Model
from router.http.errors import invalid

SCHEMES = ("http://", "https://", "file://")


def media_bytes(url: str, param: str) -> bytes:
    """The file behind a `data:` URL or a bare base64 string.

    Addresses are refused: the gateway opens no connection and no file on a client's word.
    """
    if url.startswith(SCHEMES):
        raise invalid(f"{param}: addresses are not fetched; send the file as a data: URL with base64", param)
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


def check_modalities(prompt: Prompt, model: Model) -> None:
    """Refuse images and sounds for a model that is known to take none, before it is loaded for them."""
    if model.facts is None:
        return
    for part, param in _files(prompt):
        kind, word = ("audio", "sounds") if isinstance(part, AudioPart) else ("image", "images")
        if kind not in model.input_modalities:
            raise invalid(f"{param}: the model '{model.id}' takes no {word}: it has no projector for them", param)


def _files(prompt: Prompt) -> Iterator[tuple[ContentPart, str]]:
    """The images and sounds of a prompt, and the field that each came in."""
    if isinstance(prompt, TextPrompt):
        yield from ((part, "prompt.multimodal_data") for part in prompt.media)
    elif isinstance(prompt, ChatPrompt):
        for number, message in enumerate(prompt.messages):
            parts = message.content if isinstance(message.content, tuple) else ()
            for position, part in enumerate(parts):
                if not isinstance(part, TextPart):
                    yield part, f"messages[{number}].content[{position}]"

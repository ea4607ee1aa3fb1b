"""Which files a request may bring along."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.chat import AudioPart, ImagePart
from worker.media_prompt import MediaInput
from worker.prompt.errors import PromptError

FILES_MOST = 256


@dataclass(frozen=True, slots=True)
class MediaRules:
    """`model` is named in refusals; `modalities` are those of its projector; a file has at most `n_bytes`."""

    model: str = ""
    modalities: tuple[str, ...] = ()
    n_bytes: int = 0


def media_inputs(parts: Sequence[ImagePart | AudioPart], rules: MediaRules) -> tuple[MediaInput, ...]:
    """The files of a request. Raises `PromptError`."""
    if len(parts) > FILES_MOST:
        words = f"{len(parts)} images and sounds in one request: at most {FILES_MOST} are read"
        raise PromptError(words, parts[FILES_MOST].param)
    return tuple(_media_input(part, part.param or "prompt", rules) for part in parts)


def _media_input(part: ImagePart | AudioPart, param: str, rules: MediaRules) -> MediaInput:
    kind, word = ("audio", "sounds") if isinstance(part, AudioPart) else ("image", "images")
    if kind not in rules.modalities:
        raise PromptError(f"{param}: the model '{rules.model}' takes no {word}: it has no projector for them", param)
    if len(part.data) > rules.n_bytes:
        raise PromptError(f"{param}: a file of {len(part.data)} bytes: at most {rules.n_bytes} are read", param)
    return MediaInput(part.data, param)

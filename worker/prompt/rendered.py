"""What rendering takes besides a conversation, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass

from protocol.chat import AudioPart, ImagePart
from worker.chat.syntax import OutputSyntax
from worker.prompt.limits import RenderLimits


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt and how to read what follows it.

    `media` belong to the media markers in `text`, in order. `stops` are further stop strings of the format.
    `preserved_tokens` are special tokens whose text must appear in the output for the parser to see.
    """

    text: str
    syntax: OutputSyntax
    media: tuple[ImagePart | AudioPart, ...] = ()
    stops: tuple[str, ...] = ()
    preserved_tokens: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RenderSettings:
    """Special tokens of the model as text, whether its tokenizer adds them by itself, the media marker, and bounds."""

    bos: str
    eos: str
    add_bos: bool
    add_eos: bool
    media_marker: str
    limits: RenderLimits

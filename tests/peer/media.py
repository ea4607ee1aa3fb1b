"""Chats about images and sounds, for each kind of projector."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import factory
from tests.factory.media import png, wav
from tests.peer.servers import Server

KINDS: dict[str, tuple[Callable[..., Path], Callable[[Path], Path]]] = {
    "llava": (factory.language_model, factory.projector),
    "gemma": (factory.sliding_window_model, factory.gemma_projector),
    "qwen": (factory.grid_model, factory.qwen_projector),
    "ultravox": (factory.language_model, factory.hearing_projector),
}
"""A model and its projector: causal, seen at once, with positions in a grid, and hearing."""


def written(kind: str, folder: Path) -> tuple[Path, Path]:
    model, projector = KINDS[kind]
    return model(folder / f"{kind}.gguf", sharpness=1.0), projector(folder / f"{kind}-mmproj.gguf")


def file_part(kind: str, number: int) -> dict[str, Any]:
    """One of several different files that the projector of this kind takes."""
    if kind == "ultravox":
        sound = wav(seconds=0.5 + number, hertz=200.0 + 300 * number)
        return {"type": "input_audio", "input_audio": {"data": base64.b64encode(sound).decode(), "format": "wav"}}
    image = base64.b64encode(png(300 - 100 * number, 100 + 50 * number, color=10 + 90 * number)).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}


def about(*parts: str | dict[str, Any]) -> Callable[[Server], Any]:
    """The first tokens of an answer with their probabilities, and how long the prompt was."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    body = {
        "messages": [{"role": "user", "content": content}],
        "max_tokens": 4,
        "temperature": 0.0,
        "logprobs": True,
        "top_logprobs": 10,
        "cache_prompt": False,
    }

    def ask(server: Server) -> Any:
        answer = server.post("/v1/chat/completions", body)
        steps = answer["choices"][0]["logprobs"]["content"]
        return {
            "tokens": [answer["usage"]["prompt_tokens"], *(step["token"] for step in steps)],
            "logprobs": [{top["token"]: top["logprob"] for top in step["top_logprobs"]} for step in steps],
        }

    return ask


def asks(kind: str) -> dict[str, Callable[[Server], Any]]:
    first, second = file_part(kind, 0), file_part(kind, 1)
    return {
        "one file": about("the dog", first, "and the cat"),
        "another file": about("the dog", second, "and the cat"),
        "two files": about("the dog", first, "went to", second, "the house"),
        "a file first": about(first, "the dog"),
        "a file last": about("the dog", second),
    }

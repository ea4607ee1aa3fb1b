"""Files that are no models, or no longer."""

from __future__ import annotations

from pathlib import Path

from tests.factory.weights import Weights


def truncated(path: Path, model: Path, *, keep: float = 0.5) -> Path:
    """The first part of a model file, as a download that was cut leaves it."""
    data = model.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    return path


def corrupt_tensor_table(path: Path, model: Path) -> Path:
    """A model whose header is whole but whose first tensor lies about its number of dimensions."""
    data = bytearray(model.read_bytes())
    name = b"token_embd.weight"
    place = data.rindex(len(name).to_bytes(8, "little") + name) + 8 + len(name)
    data[place : place + 4] = (77).to_bytes(4, "little")
    path.write_bytes(data)
    return path


def not_a_model(path: Path) -> Path:
    """Something else under a model's name."""
    path.write_bytes(b"<!DOCTYPE html><html><body>Not found</body></html>\n" * 40)
    return path


def unknown_architecture(path: Path) -> Path:
    """A well-formed GGUF of a kind that no engine knows."""
    weights = Weights(path, "quetzalcoatl", 1)
    weights.writer.add_type("model")
    weights.writer.add_name("tiny-unknown")
    weights.writer.add_context_length(128)
    weights.ones("token_embd.weight", 8, 8)
    return weights.finish()

"""What changes a language model from outside: LoRA adapters and control vectors."""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFType

from tests.factory.weights import Weights


def lora_adapter(
    path: Path, *, seed: int = 7, n_layer: int = 2, n_embd: int = 64, rank: int = 4, strength: float = 2.0
) -> Path:
    """A LoRA for `language_model` of the same size: it turns the output of every attention layer."""
    weights = Weights(path, "llama", seed)
    weights.writer.add_type(GGUFType.ADAPTER)
    weights.writer.add_name("tiny-adapter")
    weights.writer.add_string("adapter.type", "lora")
    weights.writer.add_float32("adapter.lora.alpha", float(rank))
    for i in range(n_layer):
        weights.matrix(f"blk.{i}.attn_output.weight.lora_a", rank, n_embd)
        weights.residual(f"blk.{i}.attn_output.weight.lora_b", n_embd, rank, scale=strength)
    return weights.finish()


def control_vector(path: Path, *, seed: int = 7, n_layer: int = 2, n_embd: int = 64, strength: float = 2.0) -> Path:
    """A direction for every layer but the first, for `language_model` of the same size."""
    weights = Weights(path, "controlvector", seed)
    weights.writer.add_string("controlvector.model_hint", "llama")
    weights.writer.add_uint32("controlvector.layer_count", n_layer - 1)
    for i in range(1, n_layer):
        values = weights.normal(n_embd) * strength
        values[0] = 0.0
        weights.put(f"direction.{i}", values)
    return weights.finish()

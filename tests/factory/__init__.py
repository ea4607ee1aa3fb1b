"""Tiny GGUF files, built in milliseconds: real to the engine, meaningless to a reader."""

from tests.factory.adapter import control_vector, lora_adapter
from tests.factory.damaged import corrupt_tensor_table, not_a_model, truncated, unknown_architecture
from tests.factory.encoder import embedding_model, reranking_model
from tests.factory.language import grid_model, hybrid_model, language_model, recurrent_model, sliding_window_model
from tests.factory.projector import gemma_projector, hearing_projector, projector, qwen_projector
from tests.factory.vocabulary import CHAT_TEMPLATE, byte_pair_vocabulary, sentence_piece_vocabulary

__all__ = [
    "CHAT_TEMPLATE",
    "byte_pair_vocabulary",
    "control_vector",
    "corrupt_tensor_table",
    "embedding_model",
    "gemma_projector",
    "grid_model",
    "hearing_projector",
    "hybrid_model",
    "language_model",
    "lora_adapter",
    "not_a_model",
    "projector",
    "qwen_projector",
    "recurrent_model",
    "reranking_model",
    "sentence_piece_vocabulary",
    "sliding_window_model",
    "truncated",
    "unknown_architecture",
]

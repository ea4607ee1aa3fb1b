"""Whether a projector belongs to a model, and what it takes to run it, by the headers of both files."""

from __future__ import annotations

from router.config.errors import BadValue
from router.config.facts import ModelFacts

UNSUPPORTED = ("deepseek4v", "hunyuanvl")
"""Kinds whose embeddings depend on where in the prompt an image stands."""


def check_projector(model: ModelFacts, projector: ModelFacts, model_path: str, projector_path: str) -> None:
    """Raise `BadValue` for a projector that cannot serve the model.

    Old files state another size than that of what they project to: a size that any tensor of the projection has is
    taken to be right, and the engine has the last word.
    """
    if projector.projector_type in UNSUPPORTED:
        raise BadValue(f"{projector_path}: projectors of the kind '{projector.projector_type}' are not supported")
    widths = projector.projection_widths
    if model.n_embd and widths and model.n_embd not in widths:
        stated = projector.projection or max(widths)
        raise BadValue(
            f"the projector {projector_path} makes embeddings of {stated} values, "
            f"and the model {model_path} takes {model.n_embd}"
        )


def projector_compute_bytes(projector: ModelFacts) -> int:
    """Bytes of the buffers that encoding one picture of the projector's own size takes.

    Attention keeps no matrix; a layer's widest point counts, as far as the header states its sizes.
    """
    wide = 4 * projector.n_embd + 2 * projector.n_ff
    return 4 * projector.n_patches * wide

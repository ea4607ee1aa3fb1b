"""Lines of the text format 0.0.4 for what a snapshot says. A model's are written again only when its sample changed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from router.metrics.families import Labels, Level, Rows
from router.metrics.snapshot import ModelSample

_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def write(name: str, rows: Rows, labels: str = "") -> bytes:
    """A line for each row; `labels` are some that all of them have, as `written_labels` gives them."""
    return "".join(
        [
            f"{name}{{{','.join(filter(None, (labels, written_labels(own))))}}} {number(value)}\n"
            if labels or own
            else f"{name} {number(value)}\n"
            for own, value in rows
        ]
    ).encode()


def written_labels(labels: Labels) -> str:
    return ",".join([f'{label}="{value.translate(_ESCAPES)}"' for label, value in labels])


def number(value: float) -> str:
    """A sample's value; whole numbers without a fraction."""
    if isinstance(value, int):
        return str(int(value))
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


class ModelLines:
    """The families that all models have. A model whose sample is the same object as before is not written again."""

    def __init__(self, levels: Sequence[Level[ModelSample]]) -> None:
        self._levels = levels
        self._headers = [level.header.encode() for level in levels]
        self._written: dict[str, tuple[ModelSample, list[bytes]]] = {}
        """By model: its sample, and its lines in each family."""
        self._samples: tuple[ModelSample, ...] | None = None
        self._text = b""
        """What these samples say."""

    def text(self, samples: tuple[ModelSample, ...]) -> Iterator[bytes]:
        """All families, last; empty pieces come before them, one for each model that had to be looked at."""
        if samples is self._samples:
            yield self._text
            return
        written = {}
        for sample in samples:
            before = self._written.get(sample.model)
            if before is not None and before[0] is sample:
                written[sample.model] = before
            else:
                written[sample.model] = sample, self._write(sample)
            yield b""
        self._written = written
        columns = zip(self._headers, *(pieces for _, pieces in written.values()), strict=True)
        self._text = b"".join(itertools.chain.from_iterable(columns))
        self._samples = samples
        yield self._text

    def _write(self, sample: ModelSample) -> list[bytes]:
        model = written_labels((("model", sample.model),))
        return [write(level.name, level.rows(sample), model) for level in self._levels]

"""The files of one prompt: as they came, where they stand between its texts, and what they were encoded to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worker.media_file import MediaChunk, MediaFile
from worker.media_tokens import chunk_at, position


@dataclass(frozen=True, slots=True)
class MediaInput:
    """A file of a request; `param` names the field that it came in."""

    data: bytes
    param: str


class MediaPrompt:
    """`pieces` are the tokens of the texts before, between and behind the files: one more than there are files."""

    def __init__(self, pieces: list[list[int]], files: Sequence[MediaInput]) -> None:
        self.pieces = pieces
        self.files = tuple(files)
        self._chunks: dict[tuple[int, ...], MediaChunk] = {}
        self._bends = False

    @property
    def text_tokens(self) -> list[int]:
        return [token for piece in self.pieces for token in piece]

    @property
    def is_encoded(self) -> bool:
        return bool(self._chunks)

    def fill(self, files: Sequence[MediaFile]) -> list[int]:
        """Take in what the files were encoded to; the tokens of the whole prompt."""
        tokens = list(self.pieces[0])
        for file, piece in zip(files, self.pieces[1:], strict=True):
            tokens += file.tokens
            tokens += piece
            for chunk in file.chunks:
                self._chunks[chunk.tokens] = chunk
                self._bends |= position(chunk.tokens, len(chunk.tokens)) != len(chunk.tokens)
        return tokens

    def chunk(self, tokens: Sequence[int], index: int) -> tuple[MediaChunk, int]:
        """The chunk that the token at `index` stands for, and where it begins."""
        start, end = chunk_at(tokens, index)
        return self._chunks[tuple(tokens[start:end])], start

    def positions(self) -> Positions | None:
        """What finds the positions of a sequence's tokens; None where they are their indexes."""
        return Positions() if self._bends else None


class Positions:
    """Positions of the tokens of a growing sequence; remembers the last one, so that the next costs no search."""

    def __init__(self) -> None:
        self._index = 0
        self._position = 0

    def at(self, tokens: Sequence[int], index: int) -> int:
        if index < self._index:
            self._index = self._position = 0
        step = index - self._index
        self._position += position(tokens[self._index : index], step)
        self._index = index
        return self._position

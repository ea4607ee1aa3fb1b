"""Encoded files by their content, within a budget of bytes, least recently used first to go."""

from __future__ import annotations

from collections import OrderedDict

from worker.media_file import MediaFile


class MediaCache:
    """Used by one thread. `hits` and `misses` count look-ups."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.n_bytes = 0
        self.hits = 0
        self.misses = 0
        self._files: OrderedDict[bytes, MediaFile] = OrderedDict()

    def __len__(self) -> int:
        return len(self._files)

    def get(self, digest: bytes) -> MediaFile | None:
        found = self._files.get(digest)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._files.move_to_end(digest)
        return found

    def put(self, digest: bytes, file: MediaFile) -> None:
        """Keep a file, unless it alone exceeds the budget."""
        if file.n_bytes > self.budget or digest in self._files:
            return
        self._files[digest] = file
        self.n_bytes += file.n_bytes
        while self.n_bytes > self.budget:
            _, oldest = self._files.popitem(last=False)
            self.n_bytes -= oldest.n_bytes

"""A bounded buffer of bytes with absolute offsets."""

from __future__ import annotations


class ByteRing:
    """Keeps the last `capacity` bytes that were appended; None keeps all.

    Offsets count from the first byte ever appended. The last append is always kept whole, however long it is.
    """

    __slots__ = ("_capacity", "_data", "_start")

    def __init__(self, capacity: int | None) -> None:
        self._capacity = capacity
        self._data = bytearray()
        self._start = 0

    @property
    def start(self) -> int:
        """Offset of the oldest byte still held."""
        return self._start

    @property
    def end(self) -> int:
        """Offset behind the newest byte."""
        return self._start + len(self._data)

    def append(self, data: bytes) -> None:
        self._data += data
        if self._capacity is None:
            return
        excess = len(self._data) - max(self._capacity, len(data))
        if excess > 0:
            del self._data[:excess]
            self._start += excess

    def read(self, offset: int) -> bytes:
        """Everything from `offset` on. Raises `ValueError` outside `start`..`end`."""
        if not self._start <= offset <= self.end:
            raise ValueError(f"offset {offset} is outside {self._start}..{self.end}")
        return bytes(memoryview(self._data)[offset - self._start :])

    def truncate(self, offset: int) -> None:
        """Forget everything from `offset` on, as if it had never been appended."""
        if offset < self._start:
            raise ValueError(f"offset {offset} is before {self._start}")
        del self._data[offset - self._start :]

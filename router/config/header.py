"""Reads the header of a GGUF file: metadata and tensor descriptions, never the weights.

The file may be hostile. Every count and length is checked against the bytes that are really there and against fixed
limits before anything is allocated; long arrays and unwanted strings are skipped. Nothing is memory-mapped: a file that
shrinks while it is read must give an error, not a SIGBUS.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from router.config.errors import BadHeader
from router.config.ggml import TYPE_SIZES

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...]

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

MAX_ENTRIES = 65_536
MAX_TENSORS = 262_144
MAX_KEY_BYTES = 65_535
MAX_TENSOR_NAME_BYTES = 1_024
MAX_STRING_BYTES = 4 << 20
"""Longest string that is kept; the longest chat templates have some 20 kB."""
MAX_ARRAY_KEPT = 1_024
"""Longest array that is kept: values per layer, not vocabularies."""
MAX_STRINGS_WALKED = 8 << 20
"""Strings skipped in all; the largest vocabularies have about a million tokens and merges."""
MAX_DIMENSIONS = 4
MAX_ELEMENTS = 1 << 50
WINDOW_BYTES = 1 << 20

STRING = 8
ARRAY = 9
SCALARS: dict[int, struct.Struct] = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32 = SCALARS[4]
_U64 = SCALARS[10]


class Tensor(Struct, frozen=True, array_like=True):
    """One tensor: its name, elements and bytes, and its dimensions."""

    name: str
    elements: int
    size: int
    shape: tuple[int, ...] = ()


class Header(Struct, frozen=True):
    """Metadata that is short enough to keep, the lengths of all arrays, and every tensor's size."""

    path: str
    version: int
    metadata: dict[str, Value]
    array_lengths: dict[str, int]
    tensors: tuple[Tensor, ...]
    file_size: int
    data_offset: int
    """Where the tensors' bytes begin."""


class _Cursor:
    """A position in a file, read through a window. Reading past the end raises `BadHeader`."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size
        self._window = b""
        self._start = 0
        self.offset = 0

    @property
    def remaining(self) -> int:
        return self._size - self.offset

    def take(self, count: int) -> bytes:
        if count > self.remaining:
            raise BadHeader(f"the file is truncated: {count} bytes wanted at offset {self.offset} of {self._size}")
        begin = self.offset - self._start
        if begin < 0 or begin + count > len(self._window):
            self._fill(count)
            begin = 0
        self.offset += count
        return self._window[begin : begin + count]

    def skip(self, count: int) -> None:
        if count > self.remaining:
            raise BadHeader(f"the file is truncated: {count} bytes wanted at offset {self.offset} of {self._size}")
        self.offset += count

    def skip_strings(self, count: int) -> None:
        """Pass over `count` strings. The loop is kept tight: vocabularies have hundreds of thousands of them."""
        if count * _U64.size > self.remaining:
            raise BadHeader(f"the file is truncated: {count} strings cannot follow offset {self.offset}")
        unpack = _U64.unpack_from
        done = 0
        while done < count:
            if self.remaining < _U64.size:
                raise BadHeader("the file is truncated within an array of strings")
            self._fill(_U64.size)
            window, position, last = self._window, 0, len(self._window) - _U64.size
            while done < count and position <= last:
                position += _U64.size + unpack(window, position)[0]
                done += 1
            self.skip(position)

    def scalar(self, kind: struct.Struct) -> int | float | bool:
        value: int | float | bool = kind.unpack(self.take(kind.size))[0]
        return value

    def unsigned(self, kind: struct.Struct) -> int:
        return int(kind.unpack(self.take(kind.size))[0])

    def string(self, limit: int, what: str) -> str:
        length = self.unsigned(_U64)
        if length > limit:
            raise BadHeader(f"{what} claims a length of {length} bytes")
        return self.take(length).decode("utf-8", "replace")

    def _fill(self, at_least: int) -> None:
        want = min(max(at_least, WINDOW_BYTES), self._size - self.offset)
        window = os.pread(self._descriptor, want, self.offset)
        if len(window) < at_least:
            raise BadHeader(f"the file ended at offset {self.offset + len(window)} while it was read")
        self._window, self._start = window, self.offset


class _Reader:
    def __init__(self, cursor: _Cursor) -> None:
        self._cursor = cursor
        self._strings_left = MAX_STRINGS_WALKED
        self.metadata: dict[str, Value] = {}
        self.array_lengths: dict[str, int] = {}

    def counts(self) -> tuple[int, int, int]:
        """The version, and how many tensors and metadata entries follow."""
        magic = self._cursor.take(4)
        if magic != MAGIC:
            raise BadHeader("not a GGUF file: it does not begin with 'GGUF'")
        version = self._cursor.unsigned(_U32)
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            if swapped in VERSIONS:
                raise BadHeader("this GGUF file is for big-endian machines")
            raise BadHeader(f"GGUF version {version} is not supported")
        tensors = self._cursor.unsigned(_U64)
        entries = self._cursor.unsigned(_U64)
        if tensors > MAX_TENSORS:
            raise BadHeader(f"the header claims {tensors} tensors")
        if entries > MAX_ENTRIES:
            raise BadHeader(f"the header claims {entries} metadata entries")
        return version, tensors, entries

    def entry(self, wanted: Callable[[str], bool]) -> None:
        key = self._cursor.string(MAX_KEY_BYTES, "a metadata key")
        if not key:
            raise BadHeader("a metadata key is empty")
        if key in self.metadata or key in self.array_lengths:
            raise BadHeader(f"the metadata key '{key}' appears twice")
        kind = self._cursor.unsigned(_U32)
        if kind == ARRAY:
            self._array(key, wanted(key))
        elif kind == STRING:
            self._string(key, wanted(key))
        elif kind in SCALARS:
            self.metadata[key] = self._cursor.scalar(SCALARS[kind])
        else:
            raise BadHeader(f"the metadata key '{key}' has the unknown type {kind}")

    def tensor(self) -> Tensor:
        name = self._cursor.string(MAX_TENSOR_NAME_BYTES, "a tensor name")
        dimensions = self._cursor.unsigned(_U32)
        if dimensions > MAX_DIMENSIONS:
            raise BadHeader(f"the tensor '{name}' claims {dimensions} dimensions")
        elements = 1
        shape: list[int] = []
        for _ in range(dimensions):
            shape.append(self._cursor.unsigned(_U64))
            elements *= shape[-1]
            if elements > MAX_ELEMENTS:
                raise BadHeader(f"the tensor '{name}' claims more elements than any memory holds")
        kind = self._cursor.unsigned(_U32)
        self._cursor.skip(_U64.size)
        block, size = TYPE_SIZES.get(kind, (0, 0))
        if not block:
            raise BadHeader(f"the tensor '{name}' has the unknown type {kind}")
        return Tensor(name, elements, elements * size // block, tuple(shape))

    def _string(self, key: str, keep: bool) -> None:
        if keep:
            self.metadata[key] = self._cursor.string(MAX_STRING_BYTES, f"'{key}'")
        else:
            self._cursor.skip(self._cursor.unsigned(_U64))

    def _array(self, key: str, keep: bool) -> None:
        kind = self._cursor.unsigned(_U32)
        length = self._cursor.unsigned(_U64)
        self.array_lengths[key] = length
        keep = keep and length <= MAX_ARRAY_KEPT
        if kind == STRING:
            if keep:
                self.metadata[key] = tuple(
                    self._cursor.string(MAX_STRING_BYTES, f"an element of '{key}'") for _ in range(length)
                )
                return
            self._strings_left -= length
            if self._strings_left < 0:
                raise BadHeader(f"'{key}' claims {length} strings")
            self._cursor.skip_strings(length)
        elif kind in SCALARS:
            scalar = SCALARS[kind]
            if not keep:
                self._cursor.skip(length * scalar.size)
                return
            self.metadata[key] = tuple(self._cursor.scalar(scalar) for _ in range(length))
        else:
            # Nested arrays are in the format's description, but no engine reads them and no model has them.
            raise BadHeader(f"the array '{key}' has elements of the unsupported type {kind}")


def read_header(path: str | Path, wanted: Callable[[str], bool] = lambda key: True) -> Header:
    """Read the header of one file. `wanted` says which strings and arrays are worth keeping.

    Takes some 10 ms for a vocabulary of 50,000 tokens. Raises `BadHeader` for a file that is not a sound GGUF, with
    the reason, and `OSError` if it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        information = os.fstat(descriptor)
        if not stat.S_ISREG(information.st_mode):
            raise BadHeader("not a regular file")
        size = information.st_size
        cursor = _Cursor(descriptor, size)
        reader = _Reader(cursor)
        version, n_tensors, n_entries = reader.counts()
        for _ in range(n_entries):
            reader.entry(wanted)
        tensors = tuple(reader.tensor() for _ in range(n_tensors))
    finally:
        os.close(descriptor)
    alignment = reader.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise BadHeader(f"general.alignment is {alignment}, not a power of two")
    data_offset = -(-cursor.offset // alignment) * alignment
    tensor_bytes = sum(tensor.size for tensor in tensors)
    if tensor_bytes > max(0, size - data_offset):
        raise BadHeader(
            f"the file is truncated: its tensors take {tensor_bytes} bytes, {max(0, size - data_offset)} are there"
        )
    return Header(str(path), version, reader.metadata, reader.array_lengths, tensors, size, data_offset)

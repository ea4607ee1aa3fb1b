"""What an image file says of itself before it is decoded: its kind and size, so that absurd ones are never decoded."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from worker.media_error import MediaError

PIXELS_MOST = 48_000_000
"""Three bytes of memory each, twice while it is scaled."""
SIDE_RATIO_MOST = 100
"""Longer strips would be scaled to no height at all."""

_PNG = b"\x89PNG\r\n\x1a\n"
_SLACK = 1 << 16
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """`kind` is `png`, `jpeg`, `gif` or `bmp`; the sides are pixels."""

    kind: str
    width: int
    height: int


def read_image_header(data: bytes) -> ImageHeader:
    """Raises `MediaError` for what is no image of a kind that can be decoded."""
    if data.startswith(_PNG):
        return _png(data)
    if data.startswith(b"\xff\xd8\xff"):
        return _jpeg(data)
    if data.startswith((b"GIF87a", b"GIF89a")):
        return ImageHeader("gif", _little(data, 6, 2), _little(data, 8, 2))
    if data.startswith(b"BM"):
        return _bmp(data)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        raise MediaError("WebP images cannot be decoded here; send PNG or JPEG")
    raise MediaError("no image that can be decoded here: PNG, JPEG, GIF and BMP can")


def check_image(data: bytes) -> ImageHeader:
    """The header of an image that may be decoded. Raises `MediaError`."""
    header = read_image_header(data)
    width, height = header.width, header.height
    if width < 1 or height < 1:
        raise MediaError(f"an image of {width} x {height} pixels")
    if width * height > PIXELS_MOST:
        raise MediaError(
            f"an image of {width} x {height} pixels: at most {PIXELS_MOST // 1_000_000} megapixels are read"
        )
    if max(width, height) > SIDE_RATIO_MOST * min(width, height):
        raise MediaError(f"an image of {width} x {height} pixels: one side is over {SIDE_RATIO_MOST} times the other")
    if header.kind == "png":
        _check_png_data(data, header)
    return header


def _png(data: bytes) -> ImageHeader:
    if data[12:16] != b"IHDR":
        raise MediaError("a damaged PNG image: it has no header")
    return ImageHeader("png", _big(data, 16, 4), _big(data, 20, 4))


def _check_png_data(data: bytes, header: ImageHeader) -> None:
    """Refuse compressed data that holds more than the pixels: a decoder would unpack all of it."""
    bytes_per_pixel = 8 if _big(data, 24, 1) == 16 else 4
    room = (header.width * bytes_per_pixel + 1) * header.height * 4 // 3 + _SLACK  # interlaced rows are a third more
    unpacker = zlib.decompressobj()
    view = memoryview(data)
    at = len(_PNG)
    try:
        while at + 8 <= len(data):
            length, kind = _big(data, at, 4), data[at + 4 : at + 8]
            if kind == b"IDAT":
                rest: bytes | memoryview = view[at + 8 : at + 8 + length]
                while rest and not unpacker.eof:
                    room -= len(unpacker.decompress(rest, _PIECE))
                    if room < 0:
                        raise MediaError("a damaged PNG image: it holds more data than pixels")
                    rest = unpacker.unconsumed_tail
            elif kind == b"IEND":
                break
            at += 12 + length
    except zlib.error as error:
        raise MediaError(f"a damaged PNG image: {error}") from error


def _jpeg(data: bytes) -> ImageHeader:
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            at += 1  # junk between segments, as decoders skip it
            continue
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return ImageHeader("jpeg", _big(data, at + 7, 2), _big(data, at + 5, 2))
        if marker == 0xFF:
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:
            at += 2
        elif marker in (0xD9, 0xDA):
            break
        else:
            at += 2 + _big(data, at + 2, 2)
    raise MediaError("a damaged JPEG image: it has no frame")


def _bmp(data: bytes) -> ImageHeader:
    if _little(data, 14, 4) == 12:
        return ImageHeader("bmp", _little(data, 18, 2), _little(data, 20, 2))
    width, height = _little(data, 18, 4), _little(data, 22, 4)
    return ImageHeader("bmp", width, height if height < 1 << 31 else (1 << 32) - height)


def _big(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(_field(data, at, size), "big")


def _little(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(_field(data, at, size), "little")


def _field(data: bytes, at: int, size: int) -> bytes:
    field = data[at : at + size]
    if len(field) < size:
        raise MediaError("a damaged image: it ends within its header")
    return field

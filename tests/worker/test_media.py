"""The pure parts of reading files: tokens that stand for embeddings, headers, the cache of what was encoded."""

from __future__ import annotations

import contextlib
import random
import struct
import zlib

import numpy as np
import pytest

from tests.factory.media import png, png_of, wav
from worker.image_header import ImageHeader, check_image, read_image_header
from worker.media_cache import MediaCache
from worker.media_error import MediaError
from worker.media_file import MediaChunk, MediaFile, file_digest
from worker.media_prompt import MediaInput, MediaPrompt
from worker.media_tokens import border, border_after, chunk_at, is_first, is_media, media_tokens, next_media, position
from worker.shift import shift_plan
from worker.sound_header import checked_sound, is_sound

DIGEST = file_digest(b"a file")


def test_tokens_are_of_the_file_and_the_chunk() -> None:
    one = media_tokens(DIGEST, 0, 6, 6)
    assert one == media_tokens(DIGEST, 0, 6, 6)
    assert len(set(one)) == 6
    assert not set(one) & set(media_tokens(DIGEST, 1, 6, 6))
    assert not set(one) & set(media_tokens(file_digest(b"another"), 0, 6, 6))
    assert all(is_media(token) for token in one)
    assert [is_first(token) for token in one] == [True] + [False] * 5


def test_every_token_is_a_number_of_32_bits_below_minus_one() -> None:
    for seed in range(2_000):
        for token in media_tokens(file_digest(str(seed).encode()), seed, 3, 1 + seed % 3):
            assert -(1 << 31) <= token < -1
            assert struct.unpack("<i", struct.pack("<i", token)) == (token,)


@pytest.mark.parametrize(("tokens", "positions"), [(0, 0), (3, 0), (3, 4), (1 << 18, 1 << 17)])
def test_sizes_that_cannot_be_written_are_refused(tokens: int, positions: int) -> None:
    with pytest.raises(ValueError, match="a chunk of"):
        media_tokens(DIGEST, 0, tokens, positions)


def test_borders_and_positions_of_prompts_made_of_chunks() -> None:
    """Against a list that says of each token where it is and whether a prefix may end before it."""
    for seed in range(50):
        numbers = random.Random(seed)
        tokens: list[int] = []
        places: list[tuple[int, bool, int]] = []  # position, a border before it, begin of the chunk
        at = 0
        for chunk in range(numbers.randint(1, 8)):
            if numbers.random() < 0.5:
                count = numbers.randint(1, 5)
                places += [(at + n, True, -1) for n in range(count)]
                tokens += range(100, 100 + count)
                at += count
            else:
                count = numbers.randint(1, 12)
                taken = numbers.randint(1, count)
                begin = len(tokens)
                places += [(at, n == 0, begin) for n in range(count)]
                tokens += media_tokens(DIGEST, chunk, count, taken)
                at += taken
        for array in (tokens, np.array(tokens, np.int32)):
            for index in range(len(tokens) + 1):
                ends = [n for n in range(len(tokens) + 1) if n == len(tokens) or places[n][1]]
                assert border(array, index) == max(n for n in ends if n <= index)
                assert border_after(array, index) == min(n for n in ends if n >= index)
                media = [n for n in range(index, len(tokens)) if places[n][2] >= 0]
                assert next_media(tokens, index) == (media[0] if media else len(tokens))
                if index in ends:
                    assert position(array, index) == (places[index][0] if index < len(tokens) else at)
                elif places[index][2] >= 0:
                    start, end = chunk_at(array, index)
                    assert start == places[index][2]
                    assert end in ends


def _chunk(index: int, n_tokens: int = 4, n_positions: int = 4, digest: bytes = DIGEST) -> MediaChunk:
    row = np.arange(n_tokens, dtype=np.int32)[None]
    embeddings = np.zeros((n_tokens, 8), np.float32)
    return MediaChunk(media_tokens(digest, index, n_tokens, n_positions), embeddings, row, np.ones_like(row))


def test_a_prompt_is_filled_and_finds_its_chunks() -> None:
    prompt = MediaPrompt([[1, 2], [3], []], [MediaInput(b"x", "a"), MediaInput(b"y", "b")])
    assert prompt.text_tokens == [1, 2, 3]
    assert not prompt.is_encoded
    first, second = _chunk(0), _chunk(0, 9, 3, file_digest(b"y"))
    tokens = prompt.fill([MediaFile(((50,), first, (51,))), MediaFile((second,))])
    assert tokens == [1, 2, 50, *first.tokens, 51, 3, *second.tokens]
    assert prompt.chunk(tokens, 5) == (first, 3)
    assert prompt.chunk(tokens, len(tokens) - 1) == (second, 9)
    positions = prompt.positions()
    assert positions is not None
    assert [positions.at(tokens, index) for index in (9, 18, 3, 9)] == [9, 12, 3, 9]
    plain = MediaPrompt([[], []], [MediaInput(b"x", "a")])
    plain.fill([MediaFile((first,))])
    assert plain.positions() is None


def test_a_shift_drops_images_whole() -> None:
    image = media_tokens(DIGEST, 0, 10, 10)
    tokens = [*range(20), *image, *range(70)]
    assert shift_plan(tokens, 20, n_keep=25, n_discard=2) == (20, 30)
    assert shift_plan(tokens, 20, n_keep=0, n_discard=22) == (0, 30)
    assert shift_plan(tokens, 20, n_keep=5, n_discard=5) == (5, 10)


def test_the_cache_keeps_what_was_used_last_within_its_bytes() -> None:
    files = {name: MediaFile((_chunk(0, digest=file_digest(name)),)) for name in (b"a", b"b", b"c")}
    size = files[b"a"].n_bytes
    cache = MediaCache(2 * size)
    cache.put(b"a", files[b"a"])
    cache.put(b"b", files[b"b"])
    assert cache.get(b"a") is files[b"a"]
    cache.put(b"c", files[b"c"])
    assert cache.get(b"b") is None
    assert cache.get(b"a") is files[b"a"]
    assert cache.n_bytes == 2 * size
    assert (cache.hits, cache.misses) == (2, 1)
    small = MediaCache(size - 1)
    small.put(b"a", files[b"a"])
    assert len(small) == small.n_bytes == 0


def _jpeg(width: int, height: int) -> bytes:
    return b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xc2\x00\x0b\x08" + struct.pack(">HH", height, width) + b"\x01\x01\x11\0"


def _bmp(width: int, height: int) -> bytes:
    return b"BM" + bytes(12) + struct.pack("<Iii", 40, width, height) + bytes(28)


@pytest.mark.parametrize(
    ("data", "header"),
    [
        (png(40, 30), ImageHeader("png", 40, 30)),
        (_jpeg(640, 480), ImageHeader("jpeg", 640, 480)),
        (b"GIF89a\x0a\0\x14\0" + bytes(10), ImageHeader("gif", 10, 20)),
        (_bmp(7, -9), ImageHeader("bmp", 7, 9)),
        (b"BM" + bytes(12) + struct.pack("<IHH", 12, 5, 6), ImageHeader("bmp", 5, 6)),
    ],
)
def test_headers_are_read_without_decoding(data: bytes, header: ImageHeader) -> None:
    assert read_image_header(data) == header


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (png_of(20_000, 20_000, b""), "20000 x 20000 pixels: at most"),
        (_jpeg(65_535, 65_535), "65535 x 65535"),
        (b"GIF89a\xff\xff\xff\xff" + bytes(10), "65535 x 65535"),
        (_bmp(1 << 30, 1 << 30), "1073741824"),
        (png_of(0, 10, b""), "0 x 10"),
        (png_of(10_000, 2, b""), "one side"),
        (_jpeg(1, 1)[:12], "no frame"),
        (b"\x89PNG\r\n\x1a\n", "no header"),
        (b"BM", "ends within its header"),
        (b"<svg/>", "no image"),
        (b"", "no image"),
    ],
)
def test_absurd_and_damaged_images_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(MediaError, match=says):
        check_image(data)


def test_a_small_image_that_unpacks_to_much_is_refused() -> None:
    bomb = png_of(10, 10, zlib.compress(bytes(64 << 20)))
    assert len(bomb) < 100_000
    with pytest.raises(MediaError, match="more data than pixels"):
        check_image(bomb)
    assert check_image(png(10, 10)) == ImageHeader("png", 10, 10)


@pytest.mark.parametrize("cut", range(0, 80, 7))
def test_any_cut_of_an_image_is_an_image_or_refused(cut: int) -> None:
    for data in (png(), _jpeg(10, 10), _bmp(3, 3)):
        with contextlib.suppress(MediaError):
            assert check_image(data[:cut]).width > 0


def test_a_wave_gets_a_header_that_is_true() -> None:
    honest = wav(seconds=0.25)
    assert checked_sound(honest) == honest
    for claims in (0xFFFFFFFF, 0x7FFFFFFF):
        assert checked_sound(wav(seconds=0.25, claims=claims)) == honest
    padded = honest[:12] + b"LIST\x04\0\0\0abcd" + honest[12:] + b"junk"
    assert checked_sound(padded) == honest


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (wav(claims=1 << 30), "claims"),
        (wav(seconds=0), "without samples"),
        (wav()[:20], "no samples"),
        (wav(seconds=3601, rate=1000), "3601 seconds"),
        (wav(rate=16_000).replace(struct.pack("<I", 16_000), struct.pack("<I", 1), 1), " 1 Hz"),
        (b"fLaC" + b"\0\0\0\x22" + bytes(34), "0 Hz"),
        (b"fLaC" + b"\x84\0\0\x28" + bytes(34), "facts"),
        (b"ID3\x04\0\0\0\0\0\x05hellofLaC", "no sound"),
        (b"\xff\xfb\x90\x00" + bytes(17 << 20), "at most"),
    ],
)
def test_sounds_that_lie_are_refused(data: bytes, says: str) -> None:
    with pytest.raises(MediaError, match=says):
        checked_sound(data)


def test_an_mp3_loses_its_tags_of_length() -> None:
    tag = b"ID3\x04\0\0\0\0\0\x02ab"
    frame = b"\xff\xfb\x90\x00" + bytes(20) + b"Xing\0\0\0\x01\xff\xff\xff\xff"
    assert checked_sound(tag + frame) == frame.replace(b"Xing", bytes(4))


def test_sounds_and_images_are_told_apart() -> None:
    assert all(is_sound(data) for data in (wav(), b"fLaC", b"ID3\x04", b"\xff\xfb\x90"))
    assert not any(is_sound(data) for data in (png(), _jpeg(1, 1), b"", b"RIFF\0\0\0\0WEBP", b"\xff"))

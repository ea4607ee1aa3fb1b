"""Files behind addresses: fetched from public hosts alone, whatever name servers and redirects say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from router.http.errors import ApiError
from router.http.public_address import is_public, resolve
from router.http.remote_media import RemoteMedia

Answers = dict[str, bytes]
PNG = b"\x89PNG" + bytes(100)


def answer(body: bytes = PNG, status: str = "200 OK", *headers: str) -> bytes:
    lines = (f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers)
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def host(answers: Answers) -> AsyncIterator[tuple[int, list[str]]]:
    """A server that answers each path with fixed bytes: its port, and the request heads that it got."""
    heads: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        data = answers[head.split()[1]]
        if data:
            writer.write(data)
            await writer.drain()
        else:
            await reader.read()  # says nothing until the client gives up
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1], heads


def looked_up(names: dict[str, list[str]]) -> Callable[[str, int], Awaitable[list[str]]]:
    async def lookup(name: str, _: int) -> list[str]:
        return names[name]

    return lookup


def remote(port: int, limit: int = 1 << 20, total: int = 1 << 20, seconds: float = 10.0) -> RemoteMedia:
    """`public.example` is the server, whose loopback address counts as public; `inside.example` is not."""
    names = {
        "public.example": ["127.0.0.1"],
        "inside.example": ["10.0.0.1"],
        "both.example": ["127.0.0.1", "10.0.0.1"],
        "none.example": [],
    }
    return RemoteMedia(limit, total, looked_up(names), lambda a: a == "127.0.0.1", {"http": port}, seconds)


async def refusal(media: RemoteMedia, url: str) -> str:
    with pytest.raises(ApiError) as caught:
        await media.fetch(url, "messages[0].content[1].image_url")
    assert caught.value.status == 400
    assert caught.value.param == "messages[0].content[1].image_url"
    return caught.value.message


async def test_a_file_is_fetched_by_the_address_that_was_looked_at() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    answers = {"/a.png?x=1": answer(), "/chunks": chunked, "/open": b"HTTP/1.1 200 OK\r\n\r\nopen end"}
    async with host(answers) as (port, heads):
        media = remote(port)
        assert await media.fetch("http://public.example/a.png?x=1", "p") == PNG
        assert await media.fetch("http://public.example/chunks", "p") == b"abcde"
        assert await media.fetch("http://public.example/open", "p") == b"open end"
    assert "Host: public.example\r\n" in heads[0]
    assert "cookie" not in heads[0].lower()
    assert "authorization" not in heads[0].lower()


async def test_hosts_inside_are_refused_also_behind_names_and_redirects() -> None:
    answers = {
        "/inside": answer(b"", "302 Found", "Location: http://inside.example/secret"),
        "/literal": answer(b"", "301 Moved", "Location: http://10.0.0.1/secret"),
        "/there": answer(b"", "307 Temporary Redirect", "Location: /a.png"),
        "/a.png": answer(),
        "/loop": answer(b"", "302 Found", "Location: /loop"),
        "/file": answer(b"", "302 Found", "Location: file:///etc/passwd"),
    }
    async with host(answers) as (port, heads):
        media = remote(port)
        for name in ("inside", "both", "none"):
            assert "not on the public internet" in await refusal(media, f"http://{name}.example/a.png")
        assert heads == []
        assert "not on the public internet" in await refusal(media, "http://public.example/inside")
        assert len(heads) == 1
        assert await media.fetch("http://public.example/there", "p") == PNG
        assert "redirected more than" in await refusal(media, "http://public.example/loop")
        assert "only plain http" in await refusal(media, "http://public.example/file")


async def test_large_slow_broken_and_odd_answers_are_refused() -> None:
    answers = {
        "/large": answer(bytes(200)),
        "/endless": b"HTTP/1.1 200 OK\r\n\r\n" + bytes(5000),
        "/silent": b"",
        "/cut": answer(bytes(90))[:-10],
        "/none": answer(b"", "404 Not Found"),
        "/junk": b"what?\r\n\r\n",
    }
    async with host(answers) as (port, _):
        media = remote(port, limit=100, seconds=0.5)
        assert "has 200 bytes: at most 100" in await refusal(media, "http://public.example/large")
        assert "more than" in await refusal(media, "http://public.example/endless")
        assert "within 0.5 seconds" in await refusal(media, "http://public.example/silent")
        assert "ended before" in await refusal(media, "http://public.example/cut")
        assert "404" in await refusal(media, "http://public.example/none")
        assert "could not be fetched" in await refusal(media, "http://public.example/junk")


async def test_the_files_of_a_request_have_a_limit_together() -> None:
    async with host({"/a": answer(bytes(60))}) as (port, _):
        media = remote(port, total=100)
        assert len(await media.fetch("http://public.example/a", "p")) == 60
        assert "at most 40" in await refusal(media, "http://public.example/a")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://public.example/a",
        "http://user:secret@public.example/a",
        "http://public.example:22/a",
        "http:///a",
        "http://public.example/a b",
        "http://public.example/\r\nX: y",
        "http://[::1/a",
    ],
)
async def test_odd_addresses_are_refused(url: str) -> None:
    assert await refusal(remote(1), url)


@pytest.mark.parametrize(
    "address",
    """127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255
    198.18.0.1 240.0.0.1 ::1 :: fe80::1 fe80::1%eth0 fc00::1 ff02::1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 64:ff9b::7f00:1
    2002:7f00:1:: 2002:a00:1:: 2001:db8::1 localhost 127.1 0x7f000001""".split(),
)
def test_addresses_inside(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_addresses_outside(address: str) -> None:
    assert is_public(address)


async def test_the_real_guard_stops_every_spelling_of_loopback() -> None:
    """With the system's own resolver and the real rule."""
    assert await resolve("127.0.0.1", 80) == ["127.0.0.1"]
    media = RemoteMedia(100, 100)
    for name in ("127.0.0.1", "127.1", "2130706433", "0x7f000001", "localhost", "[::1]", "[::ffff:127.0.0.1]"):
        message = await refusal(media, f"http://{name}/")
        assert "not on the public internet" in message or "could not be fetched" in message

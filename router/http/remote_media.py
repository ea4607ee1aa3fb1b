"""Files behind addresses that clients send. Off unless asked for, and never from inside the network.

Each host is resolved once, every one of its addresses must be public, and the connection goes to an address that was
looked at: an answer of the name server that changes in between, or a redirect, leads nowhere else.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urljoin, urlsplit

import httptools

from router.http.errors import ApiError, invalid
from router.http.public_address import Resolve, is_public, resolve

SECONDS = 20.0
REDIRECTS = 3
PORTS = {"http": 80, "https": 443}
_PIECE = 1 << 16
_HEADER_MOST = 1 << 16
_REDIRECTS = (301, 302, 303, 307, 308)


class Refused(Exception):
    """An address that is not fetched, or could not be."""


@dataclass
class _Answer:
    """What the parser of a response tells."""

    limit: int
    status: int = 0
    location: str = ""
    body: bytearray = field(default_factory=bytearray)
    framed: bool = False
    """Whether the end of the body can be told from the end of the connection."""
    done: bool = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.framed |= name in (b"content-length", b"transfer-encoding")
        if name == b"location":
            self.location = value.decode("latin-1")
        elif name == b"content-length" and value.isdigit() and int(value) > self.limit:
            raise Refused(f"the file has {int(value)} bytes: at most {self.limit} are read")

    def on_body(self, data: bytes) -> None:
        self.body += data
        if len(self.body) > self.limit:
            raise Refused(f"the file has more than {self.limit} bytes")

    def on_message_complete(self) -> None:
        self.done = True


class RemoteMedia:
    """Fetches the files of one request.

    `limit` is bytes of one file, `total` of all; `lookup`, `permits` and `ports` say where connections may go.
    """

    def __init__(
        self,
        limit: int,
        total: int,
        lookup: Resolve = resolve,
        permits: Callable[[str], bool] = is_public,
        ports: Mapping[str, int] = PORTS,
        seconds: float = SECONDS,
    ) -> None:
        self._limit = limit
        self._left = total
        self._lookup = lookup
        self._permits = permits
        self._ports = ports
        self._seconds = seconds

    async def fetch(self, url: str, param: str) -> bytes:
        """Raises a 400 `ApiError` that names the field."""
        try:
            async with asyncio.timeout(self._seconds):
                data = await self._follow(url)
        except Refused as error:
            raise _refusal(param, str(error)) from error
        except TimeoutError as error:
            raise _refusal(param, f"the file did not come within {self._seconds:g} seconds") from error
        except (OSError, ValueError, httptools.HttpParserError) as error:
            raise _refusal(param, f"the file could not be fetched: {type(error).__name__}") from error

        self._left -= len(data)
        return data

    async def _follow(self, url: str) -> bytes:
        for _ in range(REDIRECTS + 1):
            answer = await self._get(urlsplit(url))
            if answer.status == 200:
                return bytes(answer.body)
            if answer.status not in _REDIRECTS or not answer.location:
                raise Refused(f"its host answered with {answer.status}")
            url = urljoin(url, answer.location)
        raise Refused(f"it was redirected more than {REDIRECTS} times")

    async def _get(self, url: SplitResult) -> _Answer:
        port = self._ports.get(url.scheme)
        if port is None or not url.hostname or url.username is not None or url.port not in (None, port):
            raise Refused("only plain http: and https: addresses on their usual ports are fetched")
        address = await self._address(url.hostname, port)
        context = ssl.create_default_context() if url.scheme == "https" else None
        reader, writer = await asyncio.open_connection(
            address, port, ssl=context, server_hostname=url.hostname if context else None, limit=_PIECE
        )
        try:
            writer.write(_request(url))
            await writer.drain()
            return await self._read(reader)
        finally:
            writer.close()

    async def _address(self, host: str, port: int) -> str:
        addresses = await self._lookup(host, port)
        if not addresses or not all(self._permits(address) for address in addresses):
            raise Refused("its host is not on the public internet")
        return addresses[0]

    async def _read(self, reader: asyncio.StreamReader) -> _Answer:
        limit = min(self._limit, self._left)
        answer = _Answer(limit)
        parser = httptools.HttpResponseParser(answer)
        received = 0
        while not answer.done:
            data = await reader.read(_PIECE)
            if not data:
                break
            received += len(data)
            if received > 2 * limit + _HEADER_MOST:
                raise Refused("its host sends more than a file")
            try:
                parser.feed_data(data)
            except httptools.HttpParserCallbackError as error:
                raise error.__context__ if isinstance(error.__context__, Refused) else error from None
            answer.status = parser.get_status_code()
        if answer.framed and not answer.done:
            raise Refused("its host ended before the file did")
        return answer


def _request(url: SplitResult) -> bytes:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = (
        f"GET {target} HTTP/1.1",
        f"Host: {url.netloc}",
        "User-Agent: llamaherd",
        "Accept: image/*, audio/*",
        "Accept-Encoding: identity",
        "Connection: close",
    )
    if any(character < "!" or character > "~" for character in target + url.netloc):
        raise Refused("an address has no spaces and no characters beyond ASCII")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


def _refusal(param: str, words: str) -> ApiError:
    return invalid(f"{param}: {words}", param)

"""What one client may send, and how long it may take about it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from router.config.settings import Settings
from router.http.guarded import MAX_HEAD, GuardedProtocol
from router.http.listeners import Listeners
from router.http.replies import json_reply
from router.http.server import Server
from tests.eventually import eventually_async
from tests.router.http.gateway import Running, gateway
from tests.router.ops.test_process import serving
from tests.router.ops.tls import needs_openssl, tls_options


async def connect(running: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = running.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def answer_to(running: Running, *parts: bytes) -> bytes:
    """What comes back until the gateway closes or answers; the rest may find the connection closed."""
    reader, writer = await connect(running)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
    except ConnectionError:
        pass
    try:
        return await asyncio.wait_for(reader.read(2000), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_endless_headers_are_cut_off() -> None:
    async with gateway() as running:
        endless = [b"x" * 65536] * 50
        answer = await answer_to(running, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ", *endless)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
        many = [b"".join(b"X-%d: y\r\n" % number for number in range(5000))] * 20
        answer = await answer_to(running, b"GET /health HTTP/1.1\r\nHost: localhost\r\n", *many)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")


async def test_headers_within_the_bound_and_large_bodies_pass() -> None:
    async with gateway() as running, httpx.AsyncClient(base_url=running.url) as client:
        assert (await client.get("/health", headers={"X-Long": "x" * (MAX_HEAD // 2)})).status_code == 200
        body = {"model": "smol", "messages": [{"role": "user", "content": "x" * 3_000_000}]}
        for _ in range(3):
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200


async def test_headers_that_never_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuardedProtocol, "head_timeout", 0.3)
    async with gateway() as running:
        assert (await answer_to(running, b"GET /health HTTP/1.1\r\nHost: loc")).startswith(b"HTTP/1.1 408 ")
        assert (await answer_to(running)).startswith(b"HTTP/1.1 408 ")
        reader, writer = await connect(running)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert (await reader.readuntil(b'{"status":"ok"}')).startswith(b"HTTP/1.1 200 ")
        writer.write(b"GET /hea")
        assert (await asyncio.wait_for(reader.read(2000), 10)).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_a_running_answer_may_take_longer_than_its_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuardedProtocol, "head_timeout", 0.2)
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow(scope: dict[str, object], receive: object, send: object) -> None:
        begun.set()
        await release.wait()
        await json_reply({"slow": True})(scope, receive, send)  # type: ignore[arg-type]

    listeners = Listeners.bind(("127.0.0.1",), 0)
    server = Server.of(slow)  # type: ignore[arg-type]
    serving = server.run_in_background(listeners.sockets)
    async with httpx.AsyncClient(timeout=20) as client:
        asked = asyncio.create_task(client.get(listeners.addresses[0]))
        await begun.wait()
        asyncio.get_running_loop().call_later(0.5, release.set)
        assert (await asked).json() == {"slow": True}
    server.close()
    await asyncio.wait_for(serving, 10)
    listeners.close()


async def test_a_connection_too_many_is_told_so_in_json() -> None:
    listeners = Listeners.bind(("127.0.0.1",), 0)
    server = Server.of(json_reply({"fine": True}), connection_limit=2)
    serving = server.run_in_background(listeners.sockets)
    url = listeners.addresses[0]
    async with httpx.AsyncClient() as first, httpx.AsyncClient() as second, httpx.AsyncClient() as third:
        assert (await first.get(url)).json() == {"fine": True}
        assert (await second.get(url)).json() == {"fine": True}
        refused = await third.get(url)
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "unavailable_error"
        assert refused.headers["retry-after"] == "1"
        await second.aclose()
        await eventually_async(lambda: len(server.server_state.connections) == 2, 10, "a connection is closed")
        assert (await third.get(url)).status_code == 200
    server.close()
    await asyncio.wait_for(serving, 10)
    listeners.close()


async def test_bodies_have_a_limit_whether_it_is_announced_or_not() -> None:
    async with gateway(settings=Settings(body_limit=1000)) as running, httpx.AsyncClient() as client:
        url = f"{running.url}/v1/completions"
        assert (await client.post(url, content=b"x" * 1001)).status_code == 413

        async def drip() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b"x" * 100

        assert (await client.post(url, content=drip())).status_code == 413


async def test_foreign_host_names_are_refused_on_an_open_loopback_gateway() -> None:
    async with gateway() as running, httpx.AsyncClient() as client:
        for host, status in (("localhost", 200), ("127.0.0.1:1", 200), ("evil.example", 403), ("localhost.evil", 403)):
            assert (await client.get(f"{running.url}/models", headers={"Host": host})).status_code == status, host


@needs_openssl
def test_tls(tmp_path: Path) -> None:
    with serving(tmp_path, "--port", "0", *tls_options(tmp_path)) as running:
        url = running.url
        assert url.startswith("https://127.0.0.1:")
        trust = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        assert httpx.get(f"{url}/models", verify=trust).status_code == 200, "a loopback address needs no key"
        assert httpx.get(f"{url}/models", verify=trust, headers={"Host": "evil.example"}).status_code == 403
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/models")


@needs_openssl
def test_a_public_address_needs_a_key_with_tls_too(tmp_path: Path) -> None:
    with serving(tmp_path, "--host", "0.0.0.0", "--port", "0", *tls_options(tmp_path)) as running:
        url = running.url
        key = (tmp_path / "state" / "api-key").read_text().strip()
        trust = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        assert httpx.get(f"{url}/models", verify=trust).status_code == 401
        assert httpx.get(f"{url}/models", verify=trust, headers={"X-Api-Key": key}).status_code == 200


@pytest.mark.parametrize(
    ("configured", "origin", "allowed"),
    [
        ((), "http://localhost:3000", True),
        ((), "https://evil.example", False),
        ((), "null", False),
        (("https://chat.example",), "https://chat.example", True),
        (("https://chat.example",), "http://localhost:3000", False),
        (("*",), "https://evil.example", True),
    ],
)
async def test_pages_of_other_origins_may_read_what_is_configured(
    configured: tuple[str, ...], origin: str, allowed: bool
) -> None:
    settings = Settings(cors_origins=configured)
    async with gateway(settings=settings) as running, httpx.AsyncClient(base_url=running.url) as client:
        asked = {
            "Origin": origin,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "x-api-key",
        }
        preflight = await client.options("/v1/chat/completions", headers=asked)
        answers = [
            preflight,
            await client.get("/models", headers={"Origin": origin}),
            await client.get("/nothing", headers={"Origin": origin}),
        ]
        for answer in answers:
            assert answer.headers.get("access-control-allow-origin") == (origin if allowed else None)
            assert "Origin" in answer.headers["vary"]
        assert ("x-api-key" in preflight.headers.get("access-control-allow-headers", "")) == allowed

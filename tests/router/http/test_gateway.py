"""What happens before a handler: routes, keys, origins, host names, prefixes; and what holds for all of them."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from router.config.settings import Settings
from router.http.errors import Dialect
from router.http.listeners import CannotListen, Listeners, split_address
from router.http.routes import routes
from router.http.routing import Route, RouteTable
from router.security.keys import KeySpec
from router.security.scopes import Scope as KeyScope
from router.security.table import RULES, find_rule
from tests.router.http.gateway import gateway, silence

CHAT: Any = {"model": "smol", "messages": [{"role": "user", "content": "hi"}]}


async def test_every_route_asks_for_something_and_every_rule_has_its_route() -> None:
    async with gateway(listen=False) as running:
        served = {(route.method, route.path) for route in routes(running.services)}
    ruled = {(rule.method, rule.template) for rule in RULES}
    assert served - ruled == set()
    assert ruled - served == set()


async def test_unknown_route_and_wrong_method() -> None:
    async with gateway(listen=False) as running, running.client() as http:
        unknown = await http.get("/nope")
        wrong = await http.get("/v1/chat/completions")
    assert unknown.status_code == 404
    assert unknown.json() == {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}
    assert wrong.status_code == 404


async def test_head_is_get_without_a_body() -> None:
    async with gateway(listen=False) as running, running.client() as http:
        answer = await http.head("/health")
    assert answer.status_code == 200
    assert answer.content == b""


async def test_health_and_readiness() -> None:
    async with gateway(listen=False) as running, running.client() as http:
        assert (await http.get("/health")).json() == {"status": "ok"}
        assert (await http.get("/ready")).status_code == 200
        running.services.draining = True
        assert (await http.get("/health")).status_code == 200
        assert (await http.get("/ready")).status_code == 503
        running.owner.alive = False
        assert (await http.get("/health")).status_code == 503


KEYS = [
    KeySpec("k-all", "all"),
    KeySpec("k-use", "use", frozenset({KeyScope.INFER}), models=("smol",)),
    KeySpec("k-see", "see", frozenset({KeyScope.OBSERVE})),
]


@pytest.mark.parametrize(
    ("header", "path", "status"),
    [
        ({}, "/health", 200),
        ({}, "/v1/models", 401),
        ({}, "/nope", 401),
        ({"Authorization": "Bearer wrong"}, "/v1/models", 401),
        ({"Authorization": "Bearer k-all"}, "/v1/models", 200),
        ({"Authorization": "k-all"}, "/v1/models", 200),
        ({"X-Api-Key": "k-all"}, "/v1/models", 200),
        ({"Authorization": "Bearer wrong", "X-Api-Key": "k-all"}, "/v1/models", 401),
        ({"Authorization": "Bearer k-use"}, "/v1/models", 200),
        ({"Authorization": "Bearer k-use"}, "/queue", 403),
        ({"Authorization": "Bearer k-see"}, "/queue", 200),
        ({"Authorization": "Bearer k-use"}, "/models?reload=1", 403),
        ({"Authorization": "Bearer k-all"}, "/models?reload=1", 200),
    ],
)
async def test_keys(header: dict[str, str], path: str, status: int) -> None:
    async with gateway(listen=False, keys=KEYS) as running, running.client() as http:
        assert (await http.get(path, headers=header)).status_code == status


async def test_key_is_for_its_models_alone() -> None:
    async with gateway(listen=False, keys=KEYS) as running, running.client() as http:
        http.headers["Authorization"] = "Bearer k-use"
        listed = (await http.get("/v1/models")).json()
        allowed = await http.post("/v1/chat/completions", json=CHAT)
        denied = await http.post("/v1/chat/completions", json={**CHAT, "model": "user/repo:Q4_0"})
        hidden = await http.get("/v1/models/user/repo:Q4_0")
    assert [entry["id"] for entry in listed["data"]] == ["smol"]
    assert allowed.status_code == 200
    assert denied.status_code == 404
    assert hidden.status_code == 404


async def test_key_has_so_many_requests_and_no_more() -> None:
    keys = [KeySpec("k", "one", concurrency=1)]
    async with gateway(keys=keys, play=silence) as running, running.client() as http:
        http.headers["Authorization"] = "Bearer k"
        first = asyncio.create_task(http.post("/v1/chat/completions", json=CHAT))
        while not running.owner.works:
            await http.get("/health")
        second = await http.post("/v1/chat/completions", json=CHAT)
        first.cancel()
    assert second.status_code == 429
    assert second.headers["retry-after"] == "1"


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [("http://localhost:3000", True), ("app://obsidian.md", True), ("https://evil.example", False)],
)
async def test_origins(origin: str, allowed: bool) -> None:
    async with gateway(listen=False) as running, running.client() as http:
        plain = await http.get("/health", headers={"Origin": origin})
        asked = {"Origin": origin, "Access-Control-Request-Headers": "authorization"}
        preflight = await http.options("/v1/chat/completions", headers=asked)
        failed = await http.get("/nope", headers={"Origin": origin})
    for answer in (plain, preflight, failed):
        assert answer.headers.get("access-control-allow-origin") == (origin if allowed else None)
        assert answer.headers["vary"] == "Origin"
    assert preflight.status_code == 200
    assert preflight.headers.get("access-control-allow-headers") == ("authorization" if allowed else None)


@pytest.mark.parametrize(("host", "status"), [("localhost", 200), ("127.0.0.1:1234", 200), ("evil.example", 403)])
async def test_host_names_on_a_loopback_without_keys(host: str, status: int) -> None:
    async with gateway(listen=False) as running, running.client() as http:
        assert (await http.get("/health", headers={"Host": host})).status_code == status


async def test_host_names_do_not_matter_where_keys_are_asked_for() -> None:
    async with gateway(listen=False, keys=KEYS) as running, running.client() as http:
        assert (await http.get("/health", headers={"Host": "gateway.example"})).status_code == 200


async def test_prefix() -> None:
    async with (
        gateway(settings=Settings(api_prefix="/llm")) as running,
        running.client() as http,
    ):
        assert (await http.get("/llm/v1/models")).status_code == 200
        assert (await http.get("/llm/health")).status_code == 200
        assert (await http.get("/health")).status_code == 200
        assert (await http.get("/v1/models")).status_code == 404
        assert (await http.get("/llmx/v1/models")).status_code == 404


async def test_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "gateway.sock"
    async with gateway(hosts=(str(path),)) as running:
        transport = httpx.AsyncHTTPTransport(uds=str(path))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            assert (await http.get("/health")).status_code == 200
        assert path.stat().st_mode & 0o777 == 0o600
        assert running.url == f"unix:{path}"
    assert not path.exists()


async def test_fault_of_ours_is_a_500_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with gateway(listen=False) as running, running.client() as http:

        def broken() -> None:
            raise RuntimeError("a secret detail")

        running.owner.models = broken  # type: ignore[assignment, method-assign]
        running.owner.loaded_models = broken  # type: ignore[assignment, method-assign]
        answer = await http.post("/v1/chat/completions", json={"messages": CHAT["messages"]})
    assert answer.status_code == 500
    assert "secret" not in answer.text


def test_table_finds_exact_paths_before_patterns_and_refuses_doubles() -> None:
    async def handler(call: Any) -> Any: ...

    exact = Route("GET", "/a/b", handler)
    pattern = Route("GET", "/a/{rest:path}", handler, Dialect.OLLAMA)
    table = RouteTable([pattern, exact])
    assert table.find("GET", "/a/b") == (exact, {})
    assert table.find("HEAD", "/a/x/y") == (pattern, {"rest": "x/y"})
    with pytest.raises(ValueError, match="two routes"):
        RouteTable([exact, exact])


def test_rules_cover_paths_with_slashes() -> None:
    assert find_rule("GET", "/v1/models/user/repo:Q4_0") is not None


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:11434", ("127.0.0.1", 11434)),
        ("[::1]:80", ("::1", 80)),
        ("11434", ("127.0.0.1", 11434)),
        (":11434", ("127.0.0.1", 11434)),
        ("/run/a.sock", ("/run/a.sock", 0)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert split_address(address) == expected


@pytest.mark.parametrize("address", ["a:b", "", "host:99999"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(CannotListen):
        split_address(address)


def test_several_listeners_and_their_end(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    listeners = Listeners.bind(("127.0.0.1", str(path)), 0, also=("127.0.0.1:0",))
    assert len(listeners.sockets) == 3
    with pytest.raises(CannotListen, match="another server"):
        Listeners.bind((str(path),), 0)
    port = int(listeners.addresses[0].rpartition(":")[2])
    with pytest.raises(CannotListen, match="another server"):
        Listeners.bind(("127.0.0.1",), port)
    listeners.close()
    assert not path.exists()
    Listeners.bind((str(path),), 0).close()


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize(
    ("hosts", "also", "local"),
    [
        (("127.0.0.1",), (), True),
        (("localhost",), ("0",), True),
        (("::1",), (), True),
        (("0.0.0.0",), (), False),
        (("::",), (), False),
        (("127.0.0.1",), ("0.0.0.0:0",), False),
    ],
)
def test_what_only_this_machine_reaches(hosts: tuple[str, ...], also: tuple[str, ...], local: bool, tls: bool) -> None:
    listeners = Listeners.bind(hosts, 0, also, tls)
    with contextlib.closing(listeners):
        assert listeners.local is local
        assert Listeners.adopt(listeners.sockets, tls).local is local
        assert all(address.startswith("https://" if tls else "http://") for address in listeners.addresses)


def test_a_socket_file_is_of_this_machine(tmp_path: Path) -> None:
    with contextlib.closing(Listeners.bind((str(tmp_path / "a.sock"),), 0, tls=True)) as listeners:
        assert listeners.local
        assert listeners.addresses == [f"unix:{tmp_path / 'a.sock'}"]


def test_socket_file_that_nobody_listens_on_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    stale = Listeners.bind((str(path),), 0)
    stale.sockets[0].close()
    listeners = Listeners.bind((str(path),), 0)
    listeners.close()
    (tmp_path / "b.sock").write_text("not a socket")
    with pytest.raises(CannotListen, match="no socket"):
        Listeners.bind((str(tmp_path / "b.sock"),), 0)


async def test_broken_request_line_is_no_fault() -> None:
    async with gateway() as running:
        host, port = running.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"NONSENSE\r\n\r\n")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 400")


async def test_other_protocols_are_refused() -> None:
    async with gateway(listen=False) as running:

        async def receive() -> Any: ...

        async def send(message: Any) -> None: ...

        scope: Scope = {"type": "websocket"}
        receiving: Receive = receive
        sending: Send = send
        with pytest.raises(RuntimeError):
            await running.app(scope, receiving, sending)

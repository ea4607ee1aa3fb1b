"""Every route of the gateway, with every method, without a key, with a wrong one, and with each scope."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

import httpx
import pytest

from router.http.routes import routes
from router.http.routing import Route
from router.security.keys import KeySpec
from router.security.scopes import ALL_SCOPES, Access, Scope
from router.security.table import RULES, find_rule
from tests.eventually import eventually_async
from tests.router.http.gateway import Running, gateway, say, silence

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
KEYS = tuple(KeySpec(f"{scope}-key-{scope}", str(scope), frozenset({scope})) for scope in Scope)
ALL = KeySpec("all-scopes-key", "all")
NONE = KeySpec("no-scopes-key", "none", frozenset())

PUBLIC = {"/", "/index.html", "/ui/{file}", "/favicon.ico", "/health", "/v1/health", "/ready"}
"""What the world may see, written here once more: a row of the table must not slip in unnoticed."""

CHANGING = {
    "load",
    "unload",
    "pin",
    "unpin",
    "reload",
    "props",
    "lora-adapters",
    "log-level",
    "slots",
    "pull",
    "delete",
}
"""Words in paths of routes that change the gateway, if they are not GET."""


def routes_of(running: Running) -> list[Route]:
    return routes(running.services)


def example(template: str) -> str:
    """A path that the template matches."""
    return template.replace("{id:path}", "user/none").replace("{id}", "1").replace("{file}", "app.js")


async def status_of(client: httpx.AsyncClient, method: str, path: str, key: str) -> int:
    """The status alone: some answers never end. Bodies are empty objects, which no route can do anything with."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    content = b"{}" if method in ("POST", "PUT", "PATCH") else None
    async with client.stream(method, path, headers=headers, content=content) as response:
        return response.status_code


async def test_every_route_has_a_rule() -> None:
    async with gateway() as running:
        for route in routes_of(running):
            rule = find_rule(route.method, example(route.path))
            assert rule is not None, f"{route.method} {route.path} is in no row of the table"
            assert rule.template == route.path


async def test_what_is_public_is_what_is_meant_to_be() -> None:
    assert {rule.template for rule in RULES if rule.access is Access.PUBLIC} == PUBLIC
    assert {rule.method for rule in RULES if rule.access is Access.PUBLIC} == {"GET"}


def test_whatever_changes_the_gateway_needs_manage() -> None:
    for rule in RULES:
        if rule.method != "GET" and CHANGING & set(rule.template.split("/")):
            assert rule.access is Access.MANAGE, rule
        if rule.template == "/logs":
            assert rule.access is Access.MANAGE


async def test_exactly_the_allowed_requests_pass() -> None:
    async with gateway(keys=(*KEYS, ALL, NONE)) as running, httpx.AsyncClient(base_url=running.url) as client:
        judged = 0
        for route in routes_of(running):
            path = example(route.path)
            for method in METHODS:
                rule = find_rule(method, path)
                for key in ("", f"{ALL.secret}x"):
                    status = await status_of(client, method, path, key)
                    public = rule is not None and rule.access is Access.PUBLIC
                    assert (status == 401) != public, f"{method} {path} with {key!r}: {status}"
                for spec in (*KEYS, ALL, NONE):
                    status = await status_of(client, method, path, spec.secret)
                    judged += 1
                    if rule is None:
                        assert status == 404, f"{method} {path} with {spec.name}: {status}"
                    elif rule.access is Access.PUBLIC:
                        assert status not in (401, 403), f"{method} {path} with {spec.name}: {status}"
                    else:
                        opens = any(scope in spec.scopes for scope in _opened_by(rule.access))
                        assert (status == 403) != opens, f"{method} {path} with {spec.name}: {status}"
                        assert status != 401
        assert judged > 1000


def _opened_by(access: Access) -> frozenset[Scope]:
    """Who may, in words of the test's own."""
    return {
        Access.ANY: ALL_SCOPES,
        Access.INFER: frozenset({Scope.INFER}),
        Access.OBSERVE: frozenset({Scope.OBSERVE, Scope.MANAGE}),
        Access.MANAGE: frozenset({Scope.MANAGE}),
    }[access]


@pytest.mark.parametrize("path", ["/nothing", "/v1", "/api", "/ui/", "/models/", "/.env", "/metrics/", "//health"])
async def test_without_a_key_one_cannot_tell_what_exists(path: str) -> None:
    async with gateway(keys=(ALL,)) as running, httpx.AsyncClient() as client:
        url = f"{running.url}{path}"
        assert (await client.get(url)).status_code == 401
        assert (await client.get(url, headers={"X-Api-Key": ALL.secret})).status_code == 404


async def test_a_key_may_use_its_models_alone() -> None:
    spec = KeySpec("limited", "limited", models=("smol",))
    async with gateway(keys=(spec,)) as running, httpx.AsyncClient(headers={"X-Api-Key": "limited"}) as client:
        listed = (await client.get(f"{running.url}/v1/models")).json()["data"]
        assert [entry["id"] for entry in listed] == ["smol"]

        async def chat(model: str) -> int:
            body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
            return (await client.post(f"{running.url}/v1/chat/completions", json=body)).status_code

        assert await chat("smol") == 200
        assert await chat("user/repo:Q4_0") == 404
        assert await chat("never-heard-of-it") == 404


HIDDEN = "user/repo:Q4_0"
UNKNOWN = "user/repo:Q4_1"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/models/{}", None),
        ("GET", "/props?model={}", None),
        ("GET", "/slots?model={}", None),
        ("GET", "/logs?model={}", None),
        ("GET", "/lora-adapters?model={}", None),
        ("DELETE", "/models?model={}", None),
        ("DELETE", "/models?model={}&purge=1", None),
        ("DELETE", "/api/delete", {"model": "{}"}),
        ("POST", "/models/load", {"model": "{}"}),
        ("POST", "/models/unload", {"model": "{}"}),
        ("POST", "/models/pin", {"model": "{}"}),
        ("POST", "/slots/0?action=erase&model={}", {}),
        ("POST", "/api/copy", {"source": "{}", "destination": "smol-2"}),
        ("POST", "/api/show", {"model": "{}"}),
        ("POST", "/api/generate", {"model": "{}", "keep_alive": 0}),
        ("POST", "/v1/chat/completions", {"model": "{}", "messages": [{"role": "user", "content": "hi"}]}),
        ("POST", "/v1/messages", {"model": "{}", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}),
        ("POST", "/v1/responses", {"model": "{}", "input": "hi"}),
        ("POST", "/v1/embeddings", {"model": "{}", "input": "hi"}),
        ("POST", "/v1/rerank", {"model": "{}", "query": "hi", "documents": ["a"]}),
        ("POST", "/tokenize", {"model": "{}", "content": "hi"}),
    ],
)
async def test_models_of_others_do_not_exist_for_a_key(method: str, path: str, body: dict[str, object] | None) -> None:
    keys = (KeySpec("limited", "limited", models=("smol*",)), ALL)

    async def answer(name: str) -> tuple[int, str]:
        text = json.dumps(body).replace('"{}"', json.dumps(name)) if body is not None else None
        response = await client.request(method, path.format(quote(name)), content=text)
        return response.status_code, response.text.replace(name, "NAME").replace(name.partition(":")[0], "REPO")

    async with gateway(keys=keys) as running, running.client(headers={"X-Api-Key": "limited"}) as client:
        hidden = await answer(HIDDEN)
        assert hidden == await answer(UNKNOWN)
        assert hidden[0] == 404
        assert "did you mean" not in hidden[1]
        assert not running.owner.events
        assert not running.owner.works


async def test_without_a_name_a_key_gets_no_model_that_it_may_not_use() -> None:
    async with (
        gateway(keys=(KeySpec("limited", "limited", models=("smol",)),), default=HIDDEN) as running,
        running.client(headers={"X-Api-Key": "limited"}) as client,
    ):
        refused = await client.post("/v1/completions", json={"prompt": "hi"})
        assert refused.status_code == 400
        assert HIDDEN not in refused.text


async def test_a_key_has_no_more_requests_running_than_it_may() -> None:
    keys = (KeySpec("two", "two", concurrency=2), KeySpec("other", "other"))
    body = {"model": "smol", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    async with (
        gateway(keys=keys, play=silence) as running,
        httpx.AsyncClient(base_url=running.url, timeout=30) as client,
    ):

        def chat(key: str) -> asyncio.Task[httpx.Response]:
            return asyncio.create_task(client.post("/v1/chat/completions", json=body, headers={"X-Api-Key": key}))

        first, second = chat("two"), chat("two")
        await eventually_async(lambda: len(running.owner.works) == 2, 10, "both run")
        refused = await chat("two")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "2" in refused.json()["error"]["message"]
        assert (await client.get("/v1/models", headers={"X-Api-Key": "two"})).status_code == 200
        third = chat("other")
        await eventually_async(lambda: len(running.owner.works) == 3, 10, "another key is not held back")
        first.cancel()
        await eventually_async(lambda: running.owner.left, 10, "the gateway notices who left")
        running.owner.play = say("at last")
        assert (await chat("two")).status_code == 200
        for task in (second, third):
            task.cancel()
        await asyncio.gather(first, second, third, return_exceptions=True)

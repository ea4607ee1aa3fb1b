"""Schemathesis against the gateway's own description: what the schemas allow is answered, whatever it is."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from router.http.openapi import document
from router.http.routes import routes
from tests.router.http.gateway import gateway
from tests.router.http.test_native import answers

pytestmark = pytest.mark.slow

schemathesis = pytest.importorskip("schemathesis")
hypothesis = pytest.importorskip("hypothesis")

ELSEWHERE = ("/models/sse", "/logs", "/log-level", "/metrics", "/downloads", "/api/pull", "/models")
"""What never ends by itself, and what stands on parts that are not here."""


async def described() -> dict[str, Any]:
    async with gateway(listen=False) as running:
        return document([route for route in routes(running.services) if not route.path.startswith(ELSEWHERE)])


schema = schemathesis.openapi.from_dict(asyncio.run(described()))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A gateway on a thread of its own: Schemathesis calls without a loop."""
    found: list[str] = []
    ready, done = threading.Event(), threading.Event()

    async def serve() -> None:
        async with gateway(play=answers) as running:
            found.append(running.url)
            ready.set()
            await asyncio.to_thread(done.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    yield found[0]
    done.set()
    thread.join(10)


@schema.parametrize()
@hypothesis.settings(max_examples=3, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_what_the_description_allows_is_answered(case: Any, url: str) -> None:
    answer = case.call(base_url=url, timeout=10)
    assert answer.status_code != 500, answer.text
    assert "Traceback" not in answer.text

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from router.cli.main import group
from tests.router.cli.stub import StubGateway, serving

Run = Callable[..., Result]


@pytest.fixture
def gateway() -> Iterator[StubGateway]:
    with serving(StubGateway()) as running:
        yield running


@pytest.fixture
def run(gateway: StubGateway) -> Run:
    """Runs `llamaherd` with arguments against the stub gateway."""

    def invoke(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(
            group, arguments, input=input, env={"LLAMAHERD_URL": gateway.url}, catch_exceptions=False
        )

    return invoke

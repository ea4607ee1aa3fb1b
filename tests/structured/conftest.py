"""A gateway that serves SmolLM2 to many at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.gateway.process import Gateway, packaged_model, running
from tests.structured.campaign import CLIENTS

MODEL = "smol"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    models = tmp_path_factory.mktemp("models")
    (models / f"{MODEL}.gguf").symlink_to(packaged_model().resolve())
    options = ("--models-dir", str(models), "--ctx-size", "8192", "--parallel", str(CLIENTS))
    with running(tmp_path_factory.mktemp("home"), *options) as started:
        yield started

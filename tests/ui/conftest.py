"""A headless browser for the dashboard's tests; they skip with a reason where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.ui.fake_gateway import Fake, Running

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium is installed")
    # The sandbox of Chromium cannot be set up by root.
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=arguments)
        yield launched
        launched.close()


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def gateway(fake: Fake) -> Iterator[Running]:
    running = Running(fake)
    yield running
    running.close()


class Faults:
    """What a page complained of, and the addresses that it asked."""

    def __init__(self, page: Page) -> None:
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))


@pytest.fixture
def new_context(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    contexts = []
    errors: list[str] = []

    def make(width: int = 1280, height: int = 900, scheme: str = "light") -> BrowserContext:
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        context.set_default_timeout(15_000)
        context.on("weberror", lambda error: errors.append(str(error.error)))
        contexts.append(context)
        return context

    yield make
    for context in contexts:
        context.close()
    assert errors == [], "the page raised errors"


@pytest.fixture
def page(new_context: Callable[..., BrowserContext]) -> Page:
    return new_context().new_page()

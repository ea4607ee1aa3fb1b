"""The dashboard in a real browser, on a real gateway with real workers, the downloader, and a fake hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import factory
from tests.fakes.hub import FakeHub
from tests.fakes.hub_fixture import hub
from tests.router.ops.test_process import Gateway, serving

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["hub"]

pytestmark = [pytest.mark.slow, pytest.mark.model]

expect: Any = None


@pytest.fixture(autouse=True)
def _load_expect() -> None:
    global expect
    expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect


def models(folder: Path) -> None:
    """Two tiny models: they talk without end."""
    (folder / "models").mkdir()
    factory.language_model(folder / "models" / "first.gguf", seed=1)
    factory.language_model(folder / "models" / "second.gguf", seed=2)


@pytest.fixture
def gateway(tmp_path: Path, hub: FakeHub) -> Iterator[Gateway]:
    models(tmp_path)
    with serving(tmp_path, "--port", "0", "--ctx-size", "1024", "--models-max", "1", "--hf-cache") as running:
        yield running


def card(page: Page, name: str) -> Any:
    return page.locator(".card", has=page.get_by_role("heading", name=name, exact=True))


def open_page(page: Page, gateway: Gateway) -> None:
    page.set_default_timeout(30_000)
    expect.set_options(timeout=30_000)
    page.goto(gateway.url)
    expect(page.locator("#connection")).to_have_text("live")


def test_load_chat_stop_and_unload(page: Page, gateway: Gateway) -> None:
    open_page(page, gateway)
    page.get_by_role("button", name="Load first", exact=True).click()
    expect(card(page, "first").locator(".state")).to_have_text("loaded")
    expect(card(page, "first")).to_contain_text("Memory")
    page.get_by_role("button", name="Chat with first").click()
    page.get_by_label("Message").fill("Tell me a story")
    page.keyboard.press("Enter")
    answer = page.locator(".message[data-role=assistant] .text")
    expect(answer).to_have_text(re.compile(r"\w+ \w+"))
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#chat-status")).to_have_text("Stopped.")
    expect(card(page, "first")).to_contain_text("0 of 4")
    page.locator("#logs-model").select_option("first")
    expect(page.locator("#logs-text")).to_contain_text("llama")
    page.get_by_role("button", name="Unload first", exact=True).click()
    expect(card(page, "first").locator(".state")).to_have_text("unloaded")
    expect(page.locator("#events-list")).to_contain_text("unloaded")


def test_a_swap_is_explained(page: Page, gateway: Gateway) -> None:
    open_page(page, gateway)
    page.get_by_role("button", name="Load first", exact=True).click()
    expect(card(page, "first").locator(".state")).to_have_text("loaded")
    page.get_by_role("button", name="Load second", exact=True).click()
    expect(card(page, "second").locator(".state")).to_have_text("loaded")
    expect(card(page, "first").locator(".state")).to_have_text("unloaded")
    expect(page.locator("#decisions-list")).to_contain_text("first: stop")


def test_a_pull_shows_its_progress_and_becomes_a_model(
    page: Page, gateway: Gateway, hub: FakeHub, tmp_path: Path
) -> None:
    factory.language_model(tmp_path / "pulled.gguf", seed=3)
    hub.add("user/tiny-GGUF", {"tiny-Q8_0.gguf": (tmp_path / "pulled.gguf").read_bytes()})
    open_page(page, gateway)
    page.get_by_label("Pull from the hub").fill("user/tiny-GGUF:Q8_0")
    page.keyboard.press("Enter")
    expect(page.locator("#downloads-list")).to_contain_text("user/tiny-GGUF:Q8_0")
    expect(card(page, "user/tiny-GGUF:Q8_0").locator(".state")).to_have_text("unloaded")
    page.get_by_label("Pull from the hub").fill("user/absent-GGUF:Q4_K_M")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("user/absent-GGUF")


def test_it_finds_the_gateway_again_after_a_restart(page: Page, tmp_path: Path) -> None:
    models(tmp_path)
    with serving(tmp_path, "--port", "0", "--ctx-size", "1024") as running:
        open_page(page, running)
        url = running.url
    expect(page.locator("#connection")).to_contain_text("lost")
    with serving(tmp_path, "--port", url.rpartition(":")[2], "--ctx-size", "1024"):
        expect(page.locator("#connection")).to_have_text("live")
        page.get_by_role("button", name="Load second", exact=True).click()
        expect(card(page, "second").locator(".state")).to_have_text("loaded")

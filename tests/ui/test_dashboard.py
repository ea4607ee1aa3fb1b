"""The dashboard in a real browser, against the real front with made-up states behind it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from router.security.keys import KeySpec
from router.security.scopes import Scope
from tests.ui.conftest import Faults
from tests.ui.fake_gateway import GIB, Fake, Running, model

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Locator, Page

pytestmark = pytest.mark.slow

expect: Any = None


@pytest.fixture(autouse=True)
def _load_expect() -> None:
    global expect
    expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed").expect


def card(page: Page, name: str) -> Locator:
    return page.locator(".card", has=page.get_by_role("heading", name=name, exact=True))


def open_page(page: Page, gateway: Running) -> None:
    page.goto(gateway.url)
    expect(page.locator("#connection")).to_have_text("live")


def asked(fake: Fake) -> tuple[str, Any]:
    return fake.asked.get(timeout=15)


def test_models_are_shown_with_state_reason_and_numbers(page: Page, fake: Fake, gateway: Running) -> None:
    fake.add(
        model(
            "big",
            "loaded",
            aliases=["fast"],
            memory={"resident": 3 * GIB},
            slots={"total": 4, "busy": 2},
            requests={"running": 2, "waiting": 7},
            tokens_per_second=41.7,
        ),
        model("broken", status={"value": "unloaded", "failed": True, "reason": "killed for lack of memory"}),
        model("idle"),
    )
    open_page(page, gateway)
    expect(card(page, "big").locator(".state")).to_have_text("loaded")
    for text in ("3.2 GB", "2 of 4", "41.7", "7", "also fast"):
        expect(card(page, "big")).to_contain_text(text)
    expect(card(page, "broken").locator(".state")).to_have_text("failed")
    expect(card(page, "broken").locator(".reason")).to_have_text("killed for lack of memory")
    expect(page.locator("#models-summary")).to_contain_text("3 models, 1 loaded")
    page.get_by_label("Filter").fill("FAST")
    expect(page.locator(".card")).to_have_count(1)


def test_what_changes_without_an_event_is_read_again(page: Page, fake: Fake, gateway: Running) -> None:
    fake.add(model("one", "loaded"))
    open_page(page, gateway)
    expect(card(page, "one")).to_contain_text("0 of 4")
    fake.models["one"]["slots"] = {"total": 4, "busy": 3}
    expect(card(page, "one")).to_contain_text("3 of 4")


def test_a_cooldown_shows_its_end(page: Page, fake: Fake, gateway: Running) -> None:
    status = {"value": "unloaded", "failed": True, "reason": "crashed", "retry_at": time.time() + 300}
    fake.add(model("one", status=status))
    open_page(page, gateway)
    expect(card(page, "one").locator(".reason")).to_have_text(re.compile(r"crashed; next start at \d\d:\d\d:\d\d"))


def test_load_unload_and_pin_reach_the_gateway_and_events_come_back(page: Page, fake: Fake, gateway: Running) -> None:
    fake.add(model("one"))
    open_page(page, gateway)
    page.get_by_role("button", name="Load one", exact=True).click()
    assert asked(fake) == ("load", "one")
    fake.set_state("one", "loading", progress=0.42)
    expect(card(page, "one").locator(".state")).to_have_text("loading 42 %")
    fake.set_state("one", "loaded")
    expect(card(page, "one").locator(".state")).to_have_text("loaded")
    expect(page.locator("#events-list")).to_contain_text("loaded")
    page.get_by_role("button", name="Pin one").click()
    assert asked(fake) == ("pin", {"model": "one", "pin": True})
    expect(page.get_by_role("button", name="Pin one")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="Unload one").click()
    assert asked(fake) == ("unload", "one")
    fake.set_state("one", "unloaded", exit_code=0)
    expect(page.get_by_role("button", name="Load one", exact=True)).to_be_visible()


def test_a_chat_streams_and_names_what_it_waits_for(page: Page, fake: Fake, gateway: Running) -> None:
    fake.add(model("one"), model("embedder", architecture={"output_modalities": ["embeddings"]}))
    fake.finish_answer.clear()
    open_page(page, gateway)
    assert page.locator("#chat-model option").all_text_contents() == ["one"]
    page.get_by_label("Message").fill("Hi\n<b>bold</b>")
    page.keyboard.press("Enter")
    what, body = asked(fake)
    assert (what, body["model"], body["stream"]) == ("chat", "one", True)
    assert body["messages"] == [{"role": "user", "content": "Hi\n<b>bold</b>"}]
    expect(page.locator("#chat-status")).to_have_text("one: loading 42%")
    expect(page.locator(".message[data-role=assistant] .text")).to_have_text("Hello there")
    expect(page.locator(".message[data-role=user] .text")).to_have_text("Hi\n<b>bold</b>")
    fake.finish_answer.set()
    expect(page.locator(".message[data-role=assistant] .text")).to_have_text("Hello there.")
    expect(page.locator("#chat-status")).to_have_text("Done: 3 tokens.")
    page.get_by_label("Message").fill("And?")
    page.get_by_role("button", name="Send").click()
    assert [message["role"] for message in asked(fake)[1]["messages"]] == ["user", "assistant", "user"]


def test_stop_cancels_the_request_and_keeps_what_came(page: Page, fake: Fake, gateway: Running) -> None:
    fake.add(model("one", "loaded"))
    fake.finish_answer.clear()
    open_page(page, gateway)
    page.get_by_label("Message").fill("Go on")
    page.keyboard.press("Enter")
    expect(page.locator(".message[data-role=assistant] .text")).to_have_text("Hello there")
    page.get_by_role("button", name="Stop").click()
    assert fake.cancelled.wait(15)
    expect(page.locator("#chat-status")).to_have_text("Stopped.")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    expect(page.locator(".message[data-role=assistant] .text")).to_have_text("Hello there")


def test_pulls_show_a_bar_and_can_be_cancelled(page: Page, fake: Fake, gateway: Running) -> None:
    open_page(page, gateway)
    page.get_by_label("Pull from the hub").fill("nonsense")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("expected user/repo[:QUANT]")
    page.get_by_label("Pull from the hub").fill("user/repo:Q4_K_M")
    page.keyboard.press("Enter")
    assert asked(fake) == ("pull", "user/repo:Q4_K_M")
    row = page.locator("#downloads-list li")
    expect(row).to_contain_text("queued")
    fake.downloads[0].update(state="downloading", done=50_000_000, total=200_000_000, rate=5_000_000, eta=30)
    fake.publish("user/repo:Q4_K_M", "download_progress", {})
    expect(row).to_contain_text("50.0 MB of 200 MB (25 %) · 5.0 MB/s · 30 s left")
    expect(row.get_by_role("progressbar")).to_have_attribute("value", "0.25")
    page.get_by_role("button", name="Pause user/repo:Q4_K_M").click()
    assert asked(fake) == ("pause", 1)
    page.get_by_role("button", name="Resume user/repo:Q4_K_M").click()
    assert asked(fake) == ("resume", 1)
    expect(row).to_contain_text("queued")
    page.get_by_role("button", name="Cancel user/repo:Q4_K_M").click()
    assert asked(fake) == ("cancel", {"id": "1"})
    expect(row).to_have_count(0)


def test_a_failed_download_says_why(page: Page, fake: Fake, gateway: Running) -> None:
    error = {"type": "no_space", "message": "12 GB are needed, 3 GB are free", "retryable": True}
    fake.downloads = [
        {"id": 1, "reference": "user/big", "state": "failed", "done": 5, "total": 10, "eta": -1, "error": error},
        {"id": 2, "reference": "user/slow", "state": "waiting", "done": 5, "total": 10, "reason": "attempt 2 in 4 s"},
    ]
    open_page(page, gateway)
    rows = page.locator("#downloads-list li")
    expect(rows).to_have_count(2)
    failed, waiting = rows.all()
    expect(failed).to_contain_text("12 GB are needed, 3 GB are free")
    expect(waiting).to_contain_text("attempt 2 in 4 s")
    page.get_by_role("button", name="Remove user/big").click()
    page.locator("#confirm-ok").click()
    assert asked(fake) == ("cancel", {"id": "1", "purge": "1"})


def test_the_queue_says_why(page: Page, fake: Fake, gateway: Running) -> None:
    fake.waiting = [{"id": "r1", "model": "big", "position": 1, "waited_s": 12.3, "reason": "waits for room"}]
    fake.decisions = [{"at": 1.0, "model": "old", "decision": "evicted", "reason": "room for big"}]
    open_page(page, gateway)
    expect(page.locator("#queue-list li")).to_contain_text("waits for room")
    expect(page.locator("#decisions-list li")).to_contain_text("old: evicted. room for big")
    fake.waiting = []
    expect(page.locator("#queue-empty")).to_be_visible()


def test_logs_of_a_model(page: Page, fake: Fake, gateway: Running) -> None:
    fake.add(model("one"))
    open_page(page, gateway)
    page.locator("#logs-model").select_option("one")
    expect(page.locator("#logs-text")).to_contain_text("one: main: ready")


def test_deleting_asks_first(page: Page, fake: Fake, gateway: Running) -> None:
    fake.add(model("user/cached:Q8_0", source="cache", can_remove=True))
    open_page(page, gateway)
    page.get_by_role("button", name="Delete user/cached:Q8_0").click()
    page.keyboard.press("Escape")
    expect(page.locator(".card")).to_have_count(1)
    page.get_by_role("button", name="Delete user/cached:Q8_0").click()
    page.locator("#confirm-ok").click()
    assert asked(fake) == ("delete", "user/cached:Q8_0")
    expect(page.locator(".card")).to_have_count(0)


def test_a_key_is_asked_for_and_kept_to_this_tab(new_context: Callable[..., BrowserContext], fake: Fake) -> None:
    fake.add(model("one"))
    running = Running(fake, keys=(KeySpec("good-key", "people"), KeySpec("infer-key", "i", frozenset({Scope.INFER}))))
    try:
        context = new_context()
        page = context.new_page()
        page.goto(running.url)
        dialog = page.get_by_role("dialog", name="API key")
        expect(dialog).to_be_visible()
        expect(page.locator("#connection")).to_have_text("key needed")
        page.locator("#key-input").fill("wrong-key")
        page.keyboard.press("Enter")
        expect(dialog).to_contain_text("does not know this key")
        page.locator("#key-input").fill("good-key")
        page.keyboard.press("Enter")
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator(".card")).to_have_count(1)
        page.reload()
        expect(page.locator("#connection")).to_have_text("live")
        other = context.new_page()
        other.goto(running.url)
        expect(other.get_by_role("dialog", name="API key")).to_be_visible()
        other.locator("#key-input").fill("infer-key")
        other.keyboard.press("Enter")
        expect(other.locator("#connection")).to_have_text("this key may not watch")
        expect(other.locator(".card")).to_have_count(1)
    finally:
        running.close()


def test_it_reconnects_after_a_restart(page: Page, fake: Fake) -> None:
    fake.add(model("one", "loaded"))
    first = Running(fake)
    open_page(page, first)
    first.close()
    expect(page.locator("#connection")).to_contain_text("lost")
    fake.add(model("two"))
    fake.models["one"]["status"] = {"value": "unloaded"}
    second = Running(fake, port=first.port)
    try:
        expect(page.locator("#connection")).to_have_text("live")
        expect(page.locator(".card")).to_have_count(2)
        expect(card(page, "one").locator(".state")).to_have_text("unloaded")
    finally:
        second.close()


def test_names_are_text_whatever_they_hold(page: Page, fake: Fake, gateway: Running) -> None:
    hostile = '<img src=x onerror="document.title=1">'
    faults = Faults(page)
    fake.add(model(hostile, status={"value": "unloaded", "failed": True, "reason": hostile}))
    open_page(page, gateway)
    fake.publish(hostile, "model_remove")
    expect(page.locator("#events-list")).to_contain_text(hostile)
    expect(page.locator(".card .name")).to_have_text(hostile)
    assert page.locator("main img").count() == 0
    assert page.title() == "llamaherd"
    assert faults.errors == []


def test_nothing_is_fetched_from_elsewhere_and_nothing_breaks_the_policy(
    page: Page, fake: Fake, gateway: Running
) -> None:
    faults = Faults(page)
    fake.add(model("one", "loading", status={"value": "loading", "progress": 0.5}))
    open_page(page, gateway)
    page.get_by_role("button", name="Change").or_(page.locator("#theme")).first.click()
    assert faults.hosts == {f"127.0.0.1:{gateway.port}"}
    assert faults.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_in_both_themes(new_context: Callable[..., BrowserContext], fake: Fake, scheme: str) -> None:
    fake.add(model("a-name-without-any-place-to-break-it-" + "x" * 80, "loaded"), model("two"))
    fake.downloads = [{"id": 1, "reference": "user/" + "y" * 90, "state": "downloading", "done": 1, "total": 2}]
    running = Running(fake)
    try:
        page = new_context(390, 844, scheme).new_page()
        open_page(page, running)
        expect(page.locator(".card")).to_have_count(2)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(17, 21, 28)") == (scheme == "dark")
        heights = [box["height"] for button in page.get_by_role("button").all() if (box := button.bounding_box())]
        assert min(heights) >= 40
    finally:
        running.close()


def test_the_theme_can_be_chosen_and_is_remembered(page: Page, fake: Fake, gateway: Running) -> None:
    open_page(page, gateway)
    theme = page.locator("#theme")
    theme.click()
    theme.click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 21, 28)"


def test_the_keyboard_alone_suffices_and_focus_is_kept(page: Page, fake: Fake, gateway: Running) -> None:
    fake.add(model("one"), model("two"))
    open_page(page, gateway)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    load = page.get_by_role("button", name="Load two", exact=True)
    load.focus()
    fake.set_state("one", "loaded")
    expect(card(page, "one").locator(".state")).to_have_text("loaded")
    expect(load).to_be_focused()
    page.keyboard.press("Enter")
    assert asked(fake) == ("load", "two")


def test_every_control_has_a_name(page: Page, fake: Fake, gateway: Running) -> None:
    fake.add(model("one", "loading", status={"value": "loading", "progress": 0.5}, can_remove=True))
    fake.downloads = [{"id": 1, "reference": "user/repo", "state": "downloading", "done": 1, "total": 2}]
    open_page(page, gateway)
    expect(page.locator(".card")).to_have_count(1)
    for role in ("button", "textbox", "combobox", "checkbox", "searchbox", "progressbar", "link", "region"):
        named = page.get_by_role(role, name=re.compile(r"\S"))
        assert page.get_by_role(role).count() == named.count() > 0, role

"""The dashboard's files and how they are served; no browser needed."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import httpx
import pytest

from tests.deploy.files import ROOT
from tests.ui.fake_gateway import Fake, Running

FOLDER = ROOT / "router" / "ui"
SCRIPTS = sorted(FOLDER.glob("*.js"))


class Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.inline: list[str] = []
        self.labelled: list[str] = []
        self.feed((FOLDER / "index.html").read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        self.references += [str(given[name]) for name in ("src", "href") if given.get(name)]
        self.inline += [name for name in given if name == "style" or name.startswith("on")]
        if tag == "style" or (tag == "script" and not given.get("src")):
            self.inline.append(tag)


def test_the_page_has_no_inline_code_and_no_address_of_elsewhere() -> None:
    page = Page()
    assert page.inline == []
    for reference in page.references:
        assert reference.startswith("#") or (FOLDER / reference.removeprefix("ui/")).is_file(), reference
    assert len(set(page.ids)) == len(page.ids)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_import_what_exists_and_find_what_they_look_for(path: object) -> None:
    text = (FOLDER / str(path)).read_text()
    for names, module in re.findall(r"import \{([^}]*)\} from \"\./([\w.]+)\"", text):
        exported = set(
            re.findall(r"export (?:async )?(?:function\*?|const|class) (\w+)", (FOLDER / module).read_text())
        )
        wanted = {name.split(" as ")[0].strip() for name in names.split(",") if name.strip()}
        assert wanted <= exported, module
    assert set(re.findall(r"byId\(\"([\w-]+)\"\)", text)) <= set(Page().ids)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|https?://", text)


def test_no_file_is_left_out() -> None:
    imported = {"app.js"} | {
        module for path in SCRIPTS for module in re.findall(r"from \"\./([\w.]+)\"", path.read_text())
    }
    assert imported == {path.name for path in SCRIPTS}


def test_files_are_served_under_a_strict_policy_and_asked_for_again_cheaply() -> None:
    running = Running(Fake())
    try:
        with httpx.Client(base_url=running.url, headers={"Accept": "text/html,*/*"}) as client:
            page = client.get("/")
            policy = page.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert page.headers["x-content-type-options"] == "nosniff"
            assert client.get("/ui/app.js").headers["content-type"].startswith("text/javascript")
            again = client.get("/", headers={"If-None-Match": page.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            assert client.get("/favicon.ico").headers["content-type"] == "image/svg+xml"
            for missing in ("/ui/../app.py", "/ui/..%2fapp.py", "/ui/nothing.js", "/ui/__init__.py"):
                assert client.get(missing).status_code == 404, missing
            head = client.head("/")
            assert (head.status_code, head.content) == (200, b"")
            assert page.headers["vary"] == "Accept"
            assert client.get("/", headers={"Accept": "*/*"}).text == "Ollama is running"
    finally:
        running.close()


def test_the_dashboard_can_be_switched_off() -> None:
    running = Running(Fake(), ui=False)
    try:
        with httpx.Client(base_url=running.url, headers={"Accept": "text/html"}) as client:
            assert client.get("/").status_code == 404
            assert client.get("/ui/app.js").status_code == 404
            assert client.get("/", headers={"Accept": "*/*"}).text == "Ollama is running"
    finally:
        running.close()

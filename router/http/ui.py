"""The dashboard: its files, read once at the start, under a policy that lets in nothing from elsewhere."""

from __future__ import annotations

import hashlib
from importlib.resources import files

from starlette.types import Receive, Scope, Send

from router.http.call import Call, Response
from router.http.errors import ApiError
from router.http.replies import Reply
from router.http.routing import Route
from router.http.services import Services

PAGE = "index.html"

_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".svg": b"image/svg+xml",
}

_POLICY = b"; ".join(
    (
        b"default-src 'none'",
        b"script-src 'self'",
        b"style-src 'self'",
        b"img-src 'self'",
        b"connect-src 'self'",
        b"base-uri 'none'",
        b"form-action 'self'",
        b"frame-ancestors 'none'",
    )
)

_VARY = (b"vary", b"Accept")

_HEADERS = [
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    _VARY,
    # The name of a file does not change with its content, so that it is asked for again each time; 304 is cheap.
    (b"cache-control", b"no-cache"),
]


GREETING = Reply(b"Ollama is running", media_type=b"text/plain; charset=utf-8", headers=[_VARY])


class Ui:
    """Serves `/` and `/ui/…`. The files are public: what they show is asked for with the visitor's key."""

    def __init__(self, services: Services) -> None:
        self._files = load_files() if services.settings.ui else {}

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/", self.page),
            Route("GET", "/index.html", self.page),
            Route("GET", "/ui/{file}", self.file),
            Route("GET", "/favicon.ico", self.icon),
        ]

    async def page(self, call: Call) -> Response:
        """The dashboard for browsers; for programs, the words by which Ollama's clients know a server."""
        if call.scope["path"].endswith("/") and "text/html" not in call.headers.get("accept", ""):
            return GREETING
        return self._answer(PAGE)

    async def icon(self, call: Call) -> Response:
        return self._answer("icon.svg")

    async def file(self, call: Call) -> Response:
        return self._answer(call.params["file"])

    def _answer(self, name: str) -> Response:
        file = self._files.get(name)
        if file is None:
            raise ApiError(404, "not_found_error", "File Not Found")
        return file


class File:
    """One file with its headers; answers 304 to a browser that has it."""

    def __init__(self, body: bytes, media_type: bytes) -> None:
        etag = b'"' + hashlib.sha256(body).hexdigest()[:32].encode() + b'"'
        headers = [*_HEADERS, (b"etag", etag)]
        self._etag = etag
        self._whole = Reply(body, media_type=media_type, headers=headers)
        self._unchanged = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = next((value for name, value in scope["headers"] if name == b"if-none-match"), b"")
        if self._etag in (tag.strip().removeprefix(b"W/") for tag in known.split(b",")):
            await send({"type": "http.response.start", "status": 304, "headers": self._unchanged})
            await send({"type": "http.response.body", "body": b""})
            return
        await self._whole(scope, receive, send)


def load_files() -> dict[str, File]:
    """All files of the dashboard by name."""
    folder = files("router") / "ui"
    return {
        entry.name: File(entry.read_bytes(), _TYPES[_suffix(entry.name)])
        for entry in folder.iterdir()
        if entry.is_file() and _suffix(entry.name) in _TYPES
    }


def _suffix(name: str) -> str:
    return f".{name.rpartition('.')[2]}"

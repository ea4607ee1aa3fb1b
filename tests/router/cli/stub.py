"""A gateway that answers as it is told: canned answers by method and path, over real HTTP on loopback."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from msgspec import Struct


class Asked(Struct, frozen=True):
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


class Answer(Struct, frozen=True):
    """What to answer: JSON, or `text` as it is; `cut` ends the connection before the announced end."""

    status: int = 200
    value: Any = None
    text: str | None = None
    headers: dict[str, str] = {}
    cut: bool = False


Handler = Callable[[Asked], Answer]


class StubGateway:
    """Answers and remembers. An entry may be a value, an `Answer`, a list of them in turn, or a function."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Any] = {
            ("GET", "/health"): {"status": "ok"},
            ("GET", "/ready"): {"status": "ok"},
        }
        self.asked: list[Asked] = []
        self.url = ""
        self._lock = threading.Lock()

    def on(self, method: str, path: str, answer: Any) -> None:
        self.answers[method, path] = answer

    def requests(self, method: str, path: str) -> list[Asked]:
        return [asked for asked in self.asked if (asked.method, asked.path) == (method, path)]

    def answer(self, asked: Asked) -> Answer:
        with self._lock:
            self.asked.append(asked)
            found = self.answers.get((asked.method, asked.path))
            if isinstance(found, list) and found and isinstance(found[0], Answer):
                # The last one stays.
                found = found.pop(0) if len(found) > 1 else found[0]
        if found is None:
            return Answer(404, {"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}})
        if callable(found):
            found = found(asked)
        return found if isinstance(found, Answer) else Answer(value=found)


class _UnixServer(ThreadingHTTPServer):
    """The same over a unix socket, whose clients have no address."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", 0

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        connection, _ = self.socket.accept()
        return connection, ("localhost", 0)


@contextmanager
def serving(gateway: StubGateway, path: str = "") -> Iterator[StubGateway]:
    """Serves on loopback, or on a unix socket at `path`."""

    class RequestHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Tests read nothing from it."""

        def answer(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            headers = {name.lower(): value for name, value in self.headers.items()}
            answer = gateway.answer(Asked(self.command, parts.path, dict(parse_qsl(parts.query)), headers, body))
            data = json.dumps(answer.value).encode() if answer.text is None else answer.text.encode()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data) + (10 if answer.cut else 0)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)
            self.close_connection = True

        do_GET = do_POST = do_DELETE = answer

    server: ThreadingHTTPServer
    if path:
        server = _UnixServer(path, RequestHandler)  # type: ignore[arg-type]
    else:
        server = ThreadingHTTPServer(("127.0.0.1", 0), RequestHandler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    gateway.url = f"unix:{path}" if path else f"http://127.0.0.1:{server.server_port}"
    try:
        yield gateway
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def stream(*events: object, comments: tuple[str, ...] = (), done: bool = True) -> Answer:
    """A stream of chat chunks or other events."""
    lines = [f": {comment}\n\n" for comment in comments]
    lines += [f"data: {json.dumps(event)}\n\n" for event in events]
    if done:
        lines.append("data: [DONE]\n\n")
    return Answer(text="".join(lines), headers={"Content-Type": "text/event-stream"})


def chunk(content: str | None = None, **more: object) -> dict[str, object]:
    return {"model": "m", "choices": [{"index": 0, "delta": {"content": content, **more}}]}


def entry(id: str, value: str = "unloaded", **more: Any) -> dict[str, Any]:
    """A model as `/models` lists it."""
    status = {"value": value, **more.pop("status", {})}
    base = {
        "id": id,
        "aliases": [],
        "tags": [],
        "source": "preset",
        "status": status,
        "requests": {"running": 0, "waiting": 0},
    }
    return {**base, "memory": {"predicted": 2_000_000}, **more}

"""A gateway's API as far as the dashboard uses it, with states that are hard to bring about on purpose.

It runs the real HTTP front and serves the real files; only what stands behind the routes is made up. The tests
change `Fake` from their own thread and wait for what the browser shows.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from starlette.types import Receive, Scope, Send

from router.http.call import Call, Response
from router.http.doorkeeper import Doorkeeper
from router.http.errors import ApiError, ClientGone
from router.http.gateway import Gateway
from router.http.listeners import Listeners
from router.http.replies import json_reply
from router.http.routing import Route
from router.http.server import Server
from router.http.services import Services
from router.http.ui import Ui
from router.security.access import AccessPolicy
from router.security.keys import KeyRing, KeySpec

GIB = 1 << 30


def model(id: str, value: str = "unloaded", **more: Any) -> dict[str, Any]:
    """An entry of `GET /models`."""
    return {
        "id": id,
        "aliases": [],
        "object": "model",
        "status": {"value": value},
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "source": "models_dir",
        "can_remove": False,
        "pinned": False,
        "slots": {"total": 4, "busy": 0},
        "requests": {"running": 0, "waiting": 0},
        "memory": {"predicted": 2 * GIB},
        "tokens_per_second": 0.0,
        **more,
    }


class Fake:
    """The state behind the routes. `asked` holds what the page has asked for, in order."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, Any]] = {}
        self.downloads: list[dict[str, Any]] = []
        self.waiting: list[dict[str, Any]] = []
        self.decisions: list[dict[str, Any]] = []
        self.log_lines = ["llama_model_loader: loaded meta data", "main: ready"]
        self.asked: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.answer: list[str] = ["Hello", " there", "."]
        self.finish_answer = threading.Event()
        self.finish_answer.set()
        self.cancelled = threading.Event()
        self._subscribers: list[asyncio.Queue[dict[str, Any] | None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, *entries: dict[str, Any]) -> None:
        self.models.update({entry["id"]: entry for entry in entries})

    def publish(self, model: str, event: str, data: dict[str, Any] | None = None) -> None:
        """Send an event to every page, from any thread."""
        message = {"model": model, "event": event, "data": data or {}}
        self._call(lambda: self._put(message))

    def set_state(self, id: str, value: str, **data: Any) -> None:
        """Change a model and tell the pages."""
        self.models[id]["status"] = {"value": value, **data}
        self.publish(id, "status_change", {"status": value, **data})

    def drop_connections(self) -> None:
        """End every event stream, as a restart would."""
        self._call(lambda: self._put(None))

    def _put(self, message: dict[str, Any] | None) -> None:
        for subscriber in self._subscribers:
            subscriber.put_nowait(message)

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/models", self._models),
            Route("GET", "/models/sse", self._events),
            Route("POST", "/models", self._pull),
            Route("POST", "/models/load", self._load),
            Route("POST", "/models/unload", self._unload),
            Route("POST", "/models/pin", self._pin),
            Route("DELETE", "/models", self._delete),
            Route("GET", "/queue", self._queue),
            Route("GET", "/downloads", self._downloads),
            Route("DELETE", "/downloads", self._cancel),
            Route("POST", "/downloads/pause", self._pause),
            Route("POST", "/downloads/resume", self._pause),
            Route("GET", "/logs", self._logs),
            Route("POST", "/v1/chat/completions", self._chat),
        ]

    def _call(self, function: Callable[[], object]) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(function)

    async def _models(self, call: Call) -> Response:
        self._loop = asyncio.get_running_loop()
        return json_reply({"object": "list", "data": list(self.models.values())})

    async def _events(self, call: Call) -> Response:
        self._loop = asyncio.get_running_loop()
        subscriber: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        snapshot = {"models": list(self.models.values()), "downloads": self.downloads}
        subscriber.put_nowait({"model": "*", "event": "snapshot", "data": snapshot})
        self._subscribers.append(subscriber)
        return _Stream(call, subscriber, self._subscribers.remove)

    async def _pull(self, call: Call) -> Response:
        reference = json.loads(await call.body())["model"]
        if "/" not in reference:
            raise ApiError(400, "invalid_request_error", f"'{reference}' is no reference: expected user/repo[:QUANT]")
        self.asked.put(("pull", reference))
        self.downloads.append(
            {"id": len(self.downloads) + 1, "reference": reference, "state": "queued", "done": 0, "total": 0}
        )
        return json_reply({"success": True})

    async def _load(self, call: Call) -> Response:
        self.asked.put(("load", json.loads(await call.body())["model"]))
        return json_reply({"success": True})

    async def _unload(self, call: Call) -> Response:
        self.asked.put(("unload", json.loads(await call.body())["model"]))
        return json_reply({"success": True})

    async def _pin(self, call: Call) -> Response:
        wish = json.loads(await call.body())
        self.asked.put(("pin", wish))
        self.models[wish["model"]]["pinned"] = wish["pin"]
        return json_reply({"success": True})

    async def _delete(self, call: Call) -> Response:
        self.asked.put(("delete", call.query["model"]))
        del self.models[call.query["model"]]
        return json_reply({"success": True})

    async def _queue(self, call: Call) -> Response:
        return json_reply({"waiting": self.waiting, "decisions": self.decisions})

    async def _downloads(self, call: Call) -> Response:
        return json_reply({"data": self.downloads})

    async def _cancel(self, call: Call) -> Response:
        self.asked.put(("cancel", dict(call.query)))
        self.downloads = [item for item in self.downloads if str(item["id"]) != call.query["id"]]
        return json_reply({"success": True})

    async def _pause(self, call: Call) -> Response:
        what = call.scope["path"].rpartition("/")[2]
        id = json.loads(await call.body())["id"]
        self.asked.put((what, id))
        self.downloads[id - 1]["state"] = {"pause": "paused", "resume": "queued"}[what]
        return json_reply({"success": True})

    async def _logs(self, call: Call) -> Response:
        return _Text("".join(f"{call.query['model']}: {line}\n" for line in self.log_lines))

    async def _chat(self, call: Call) -> Response:
        self.asked.put(("chat", json.loads(await call.body())))
        return _Chat(call, self)


class _Stream:
    def __init__(self, call: Call, source: asyncio.Queue[Any], leave: Callable[[Any], None]) -> None:
        self._call = call
        self._source = source
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        gone = asyncio.ensure_future(_gone(receive))
        number = 0
        try:
            while True:
                take = asyncio.ensure_future(self._source.get())
                await asyncio.wait({take, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not take.done() or take.result() is None:
                    take.cancel()
                    break
                number += 1
                data = f"id: {number}\ndata: {json.dumps(take.result())}\n\n"
                await send({"type": "http.response.body", "body": data.encode(), "more_body": True})
        finally:
            gone.cancel()
            self._leave(self._source)
        await send({"type": "http.response.body", "body": b""})


class _Chat:
    """Streams the fake's answer; the last piece waits until `finish_answer` is set or the client leaves."""

    def __init__(self, call: Call, fake: Fake) -> None:
        self._fake = fake

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})

        async def say(text: str) -> None:
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})

        await say(": loading 42%\n\n")
        *first, last = self._fake.answer
        for piece in first:
            await say(_chunk({"choices": [{"index": 0, "delta": {"content": piece}}]}))
        gone = asyncio.ensure_future(_gone(receive))
        finish = asyncio.ensure_future(asyncio.to_thread(self._fake.finish_answer.wait, 30))
        await asyncio.wait({gone, finish}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            self._fake.cancelled.set()
            self._fake.finish_answer.set()
            await finish
            raise ClientGone
        gone.cancel()
        await say(_chunk({"choices": [{"index": 0, "delta": {"content": last}, "finish_reason": "stop"}]}))
        await say(_chunk({"choices": [], "usage": {"completion_tokens": 3}}))
        await say("data: [DONE]\n\n")
        await send({"type": "http.response.body", "body": b""})


class _Text:
    def __init__(self, text: str) -> None:
        self._text = text

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": self._text.encode()})


def _chunk(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value)}\n\n"


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Running:
    """The fake behind the real front, served from a thread of its own."""

    def __init__(self, fake: Fake, keys: tuple[KeySpec, ...] = (), port: int = 0, ui: bool = True) -> None:
        services = cast(Services, SimpleNamespace(settings=SimpleNamespace(ui=ui)))
        doorkeeper = Doorkeeper(AccessPolicy(KeyRing(keys)))
        app = Gateway([*Ui(services).routes(), *fake.routes()], doorkeeper, body_limit=1 << 20)
        self._listeners = Listeners.bind(("127.0.0.1",), port)
        self.url = self._listeners.addresses[0] + "/"
        self.port = int(self.url.rstrip("/").rpartition(":")[2])
        self._server = Server.of(app)
        self._fake = fake
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=self._listeners.sockets))

    def close(self) -> None:
        self._fake.drop_connections()
        self._fake.finish_answer.set()
        self._server.close()
        self._thread.join(20)
        self._listeners.close()
        assert not self._thread.is_alive()

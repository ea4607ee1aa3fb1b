"""`/models/sse`: what happens to models, from a snapshot on, with ids to go on from and heartbeats."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from router.http import sse
from router.http.answering import STREAM_HEADERS
from router.http.call import Call, Response
from router.http.connection import WhileConnected
from router.http.models import meta, model_entry
from router.http.routing import Route
from router.http.services import Services
from router.scheduling.views import ModelView
from router.supervision.news import News, NewsMissed

HEARTBEAT = 15.0
"""Seconds of silence after which a comment shows that the connection lives."""

REMEMBERED = 64
"""Events whose bytes are kept for further followers, who are at most a few events behind one another."""


class Events:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._wording = Wording(services)

    def routes(self) -> list[Route]:
        return [Route("GET", "/models/sse", self.follow)]

    async def follow(self, call: Call) -> Response:
        last = call.headers.get("last-event-id", "")
        begin = int(last) if last.isdecimal() and len(last) < 19 else None
        return EventStream(self._services, self._wording, call, begin)


class EventStream:
    """One follower. It begins with a snapshot, or with what came after the event that it names."""

    def __init__(self, services: Services, wording: Wording, call: Call, last_id: int | None) -> None:
        self._services = services
        self._wording = wording
        self._call = call
        self._last_id = last_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/event-stream"), *STREAM_HEADERS]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        subscription = self._services.owner.news.subscribe(self._last_id)
        with WhileConnected(receive):
            if self._last_id is None:
                await _part(send, self._snapshot(subscription.last_id))
            while not self._services.closing.is_set():
                try:
                    news = await subscription.next(HEARTBEAT)
                except NewsMissed:
                    await _part(send, self._snapshot(subscription.last_id))
                    continue
                data = b": heartbeat\n\n" if news is None else self._events(news)
                if data:
                    await _part(send, data)
            await send({"type": "http.response.body", "body": b""})

    def _snapshot(self, last_id: int) -> bytes:
        models = [
            model_entry(self._services, model)
            for model in self._services.catalogue.listed()
            if self._call.may_use(*model.names)
        ]
        data = {"models": models, "downloads": self._services.running_downloads()}
        return event(last_id, {"model": "*", "event": "snapshot", "data": data})

    def _events(self, news: News) -> bytes:
        """One event for each name that the news is about; none for names that the key may not use."""
        return b"".join([text for names, text in self._wording.of(news) if not names or self._call.may_use(*names)])


class Wording:
    """What followers are sent of an event, made once for all of them."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._made: dict[int, list[tuple[tuple[str, ...], bytes]]] = {}

    def of(self, news: News) -> list[tuple[tuple[str, ...], bytes]]:
        """For each model that the news is about, all its names, and the bytes; no names where it is about none."""
        made = self._made.get(news.id)
        if made is None:
            if len(self._made) >= REMEMBERED:
                del self._made[next(iter(self._made))]
            made = self._made[news.id] = self._make(news)
        return made

    def _make(self, news: News) -> list[tuple[tuple[str, ...], bytes]]:
        body: dict[str, Any] = {"model": news.key, "event": news.event}
        if news.view is not None:
            body["data"] = change(news.view, news)
        elif news.data:
            body["data"] = msgspec.Raw(news.data)
        sharing = self._services.catalogue.sharing(news.key)
        if not sharing:
            return [((), event(news.id, body))]
        return [(model.names, event(news.id, body | {"model": model.id})) for model in sharing]


async def _part(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


def event(id: int, body: dict[str, Any]) -> bytes:
    return b"id: %d\n" % id + sse.event(sse.to_json(body))


def change(view: ModelView, news: News) -> dict[str, Any]:
    """The data of `status_change`, with llama-server's members and the reason."""
    data: dict[str, Any] = {"status": view.status}
    if view.status == "loading":
        data["progress"] = {"stages": [view.stage], "current": view.stage, "value": view.progress}
    if news.info is not None:
        data["info"] = {"meta": meta(news.info)}
    if view.status == "unloaded" and view.exit is not None:
        data["exit_code"] = view.exit.exit_code
    if view.failed:
        data["failed"] = True
    if view.reason:
        data["reason"] = view.reason
    return data

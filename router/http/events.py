"""`/models/sse`: what happens to models, from a snapshot on, with ids to go on from and heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
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


class Events:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [Route("GET", "/models/sse", self.follow)]

    async def follow(self, call: Call) -> Response:
        last = call.headers.get("last-event-id", "")
        return EventStream(self._services, call, int(last) if last.isdecimal() and len(last) < 19 else None)


class EventStream:
    """One follower. It begins with a snapshot, or with what came after the event that it names."""

    def __init__(self, services: Services, call: Call, last_id: int | None) -> None:
        self._services = services
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
                data = b": heartbeat\n\n" if news is None else b"".join(self._events(news))
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

    def _events(self, news: News) -> Iterator[bytes]:
        """One event for each name that the news is about; none for names that the key may not use."""
        sharing = self._services.catalogue.sharing(news.key)
        names = [model.id for model in sharing if self._call.may_use(*model.names)] if sharing else [news.key]
        for name in names:
            body: dict[str, Any] = {"model": name, "event": news.event}
            if news.view is not None:
                body["data"] = change(news.view, news)
            elif news.data:
                body["data"] = msgspec.Raw(news.data)
            yield event(news.id, body)


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

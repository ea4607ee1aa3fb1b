"""Ollama's pull and delete, over the same downloads as everybody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec
from starlette.types import Receive, Scope, Send

from protocol.download import DownloadChoice, JobState
from router.downloads.job import DownloadError, Job
from router.http import sse
from router.http.call import Call, Response
from router.http.connection import WhileConnected
from router.http.decoding import decode
from router.http.downloads import DownloadRoutes
from router.http.errors import Dialect, from_wire, model_not_found
from router.http.ollama_models import NameRequest
from router.http.replies import Reply, json_reply
from router.http.routing import Route
from router.http.services import Services

INTERVAL = 0.2
"""Seconds between two lines of progress."""
HUBS = ("hf.co/", "huggingface.co/", "https://hf.co/", "https://huggingface.co/")


class PullRequest(NameRequest, kw_only=True):
    stream: bool | None = None


_pull: msgspec.json.Decoder[PullRequest] = msgspec.json.Decoder(PullRequest)
_delete: msgspec.json.Decoder[NameRequest] = msgspec.json.Decoder(NameRequest)


class OllamaPull:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._downloads = DownloadRoutes(services)

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/api/pull", self.pull, Dialect.OLLAMA),
            Route("DELETE", "/api/delete", self.delete, Dialect.OLLAMA),
        ]

    async def pull(self, call: Call) -> Response:
        """Fetch a model from the hub. One that is there already is pulled at once."""
        request = decode(_pull, await call.body())
        name = request.wanted
        known = self._services.lookup(name)
        if known is not None and not known.missing:
            job = None
        else:
            reference = name if known is None else known.missing
            for hub in HUBS:
                reference = reference.removeprefix(hub)
            try:
                job = await self._services.downloads.pull(DownloadChoice(reference))
            except DownloadError as error:
                raise from_wire(error.error) from error
        if request.stream is not False:
            return PullProgress(job)
        if job is not None:
            await asyncio.shield(job.finished)
            if job.error is not None:
                raise from_wire(job.error)
        return json_reply({"status": "success"})

    async def delete(self, call: Call) -> Response:
        """Delete a model's files, or a name that `/api/copy` has made."""
        name = decode(_delete, await call.body()).wanted
        model = self._services.visible(call, name)
        if model is None and not call.may_use(name):
            raise model_not_found(name)
        if not self._services.copies.drop(name):
            if model is None:
                raise model_not_found(name)
            await self._downloads.delete_model(model)
        return Reply(b"", media_type=b"text/plain")


class PullProgress:
    """Lines of JSON until the download ends. It goes on by itself if the client leaves."""

    def __init__(self, job: Job | None) -> None:
        self._job = job
        self._told: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with WhileConnected(receive):
            await _lines(send, [{"status": "pulling manifest"}])
            if self._job is not None:
                await self._follow(self._job, send)
            if self._job is None or self._job.state is JobState.DONE:
                ending: list[dict[str, Any]] = [{"status": "writing manifest"}, {"status": "success"}]
            else:
                error = self._job.error
                ending = [{"error": error.message if error is not None else f"the download was {self._job.state}"}]
            await _lines(send, ending)
            await send({"type": "http.response.body", "body": b""})

    async def _follow(self, job: Job, send: Send) -> None:
        verifying = False
        while not job.finished.done():
            await asyncio.wait([job.finished], timeout=INTERVAL)
            await _lines(send, list(self._progress(job)))
            if job.state is JobState.VERIFYING and not verifying:
                verifying = True
                await _lines(send, [{"status": "verifying sha256 digest"}])

    def _progress(self, job: Job) -> Iterator[dict[str, Any]]:
        """A line for each file that has come further."""
        blobs = {file.path: file.blob for file in job.plan.files} if job.plan is not None else {}
        for file in job.files:
            if self._told.get(file.path) != file.done:
                self._told[file.path] = file.done
                blob = blobs.get(file.path, "")
                yield {
                    "status": f"pulling {blob[:12] or file.path}",
                    "digest": f"sha256:{blob}",
                    "total": file.total,
                    "completed": file.done,
                }


async def _lines(send: Send, values: list[dict[str, Any]]) -> None:
    if values:
        body = b"".join(sse.to_json(value) + b"\n" for value in values)
        await send({"type": "http.response.body", "body": body, "more_body": True})

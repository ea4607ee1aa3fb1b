"""Downloads over HTTP: llama-server's `POST /models` and `DELETE /models`, and a queue that can be seen and steered."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from protocol.download import DownloadChoice, RemoveModel
from router.config.hub_cache import cache_folder
from router.config.model import Model
from router.downloads.job import DownloadError, Job
from router.http.call import Call, Response
from router.http.decoding import decode
from router.http.download_entries import job_entry, partial_entry, plan_entry
from router.http.errors import ApiError, from_wire, invalid, model_not_found
from router.http.replies import json_reply
from router.http.routing import Route
from router.http.services import Services

_REPO_PREFIX = "models--"


class PullRequest(Struct):
    """`model` is a reference to the hub. `projector` and `draft`: `auto`, `none`, or a file's name."""

    model: str | None = None
    projector: str | None = None
    draft: str | None = None
    dry_run: bool | None = None


class JobRequest(Struct):
    """A download by the number or by the name that it has."""

    id: int | None = None
    model: str | None = None


_pull: msgspec.json.Decoder[PullRequest] = msgspec.json.Decoder(PullRequest)
_job: msgspec.json.Decoder[JobRequest] = msgspec.json.Decoder(JobRequest)


class DownloadRoutes:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/models", self.pull),
            Route("DELETE", "/models", self.delete),
            Route("GET", "/downloads", self.list),
            Route("GET", "/downloads/{id}", self.one),
            Route("DELETE", "/downloads", self.cancel),
            Route("DELETE", "/downloads/{id}", self.cancel),
            Route("POST", "/downloads/pause", self.pause),
            Route("POST", "/downloads/resume", self.resume),
        ]

    async def pull(self, call: Call) -> Response:
        """Plan, check the space, queue. Answers when that is settled; the transfer goes on by itself."""
        request = decode(_pull, await call.body())
        if not request.model:
            raise invalid("'model' is required", "model")
        choice = DownloadChoice(request.model.strip(), request.projector or "auto", request.draft or "none")
        try:
            if request.dry_run:
                job = await self._services.downloads.plan(choice)
            else:
                job = await self._services.downloads.pull(choice)
        except DownloadError as error:
            raise from_wire(error.error) from error
        return json_reply({"success": True, **plan_entry(job), **job_entry(job)})

    async def list(self, call: Call) -> Response:
        downloads = self._services.downloads
        return json_reply(
            {
                "object": "list",
                "data": [job_entry(job) for job in downloads.jobs() if not job.dry],
                "partials": [partial_entry(partial) for partial in downloads.partials()],
            }
        )

    async def one(self, call: Call) -> Response:
        return json_reply({**plan_entry(job := self._numbered(call.params["id"])), **job_entry(job)})

    async def cancel(self, call: Call) -> Response:
        """End a download that runs, keeping it in the list; take one that has ended out of it."""
        job = self._numbered(call.params.get("id") or call.query.get("id") or "")
        purge = call.flag("purge", False)
        if not job.over:
            return await self._cancel(job, purge)
        try:
            await self._services.downloads.discard(job, purge)
        except DownloadError as error:
            raise from_wire(error.error) from error
        return json_reply({"success": True, "state": job.state, "kept_bytes": job.kept, "freed_bytes": job.freed})

    async def pause(self, call: Call) -> Response:
        job = self._meant(decode(_job, await call.body()))
        try:
            self._services.downloads.pause(job)
        except DownloadError as error:
            raise from_wire(error.error) from error
        return json_reply({"success": True})

    async def resume(self, call: Call) -> Response:
        job = self._meant(decode(_job, await call.body()))
        try:
            self._services.downloads.resume(job)
        except DownloadError as error:
            raise from_wire(error.error) from error
        return json_reply({"success": True})

    async def delete(self, call: Call) -> Response:
        """Cancel a download, or delete a model that is not loaded, or (`purge=1`) what is left of a cancelled one.

        `old=1` deletes the revisions of the model's repository that nothing refers to any more, and nothing else.
        """
        name = call.query.get("model") or ""
        if not name:
            raise invalid("'model' is required", "model")
        model = self._services.visible(call, name)
        if model is None and self._services.lookup(name) is not None:
            raise model_not_found(name)
        purge = call.flag("purge", False)
        if call.flag("old", False):
            freed = await self._remove(RemoveModel(0, self._repository(name), superseded=True))
            return json_reply({"success": True, "freed_bytes": freed})
        job = self._services.downloads.find(name)
        if job is not None:
            return await self._cancel(job, purge)
        if model is not None and not model.missing:
            return json_reply({"success": True, "freed_bytes": await self.delete_model(model)})
        if purge and (freed := await self._purge(name)):
            return json_reply({"success": True, "freed_bytes": freed})
        raise model_not_found(name)

    async def delete_model(self, model: Model) -> int:
        """Delete the files of a model that is not loaded; returns the bytes freed. Raises `ApiError`."""
        if not model.can_remove:
            raise invalid(f"model name={model.id} is not removable (not from cache)", "model")
        place = _place_in_cache(model.path)
        if place is None:
            raise invalid(f"model name={model.id} is not in the hub cache", "model")
        for other in self._services.catalogue.models.values():
            if other.path == model.path and self._is_loaded(other):
                raise ApiError(409, "conflict_error", f"model '{other.id}' is loaded; unload it first", param="model")
        repo, path = place
        freed = await self._remove(RemoveModel(0, repo, paths=(path,)))
        self._services.owner.news.publish(model.id, "model_remove")
        return freed

    def _is_loaded(self, model: Model) -> bool:
        view = self._services.owner.view(model.key) if model.key else None
        return view is not None and view.status != "unloaded"

    async def _purge(self, name: str) -> int:
        """Drop the unfinished files of a repository, or of one of its models."""
        repo = self._repository(name)
        mine = [partial for partial in self._services.downloads.partials() if partial.repo.lower() == repo.lower()]
        if not mine:
            return 0
        return await self._remove(RemoveModel(0, mine[0].repo, partials=("*",)))

    async def _remove(self, request: RemoveModel) -> int:
        try:
            return await self._services.downloads.remove(request)
        except DownloadError as error:
            raise from_wire(error.error) from error

    async def _cancel(self, job: Job, purge: bool) -> Response:
        try:
            await self._services.downloads.cancel(job, purge)
        except DownloadError as error:
            raise from_wire(error.error) from error
        return json_reply({"success": True, "state": job.state, "kept_bytes": job.kept, "freed_bytes": job.freed})

    def _repository(self, name: str) -> str:
        """The repository that a model's id or a reference names."""
        model = self._services.lookup(name)
        place = _place_in_cache(model.path) if model is not None else None
        if place is not None:
            return place[0]
        parts = name.split(":")[0].split("@")[0].split("/")
        if len(parts) < 2 or not all(parts[:2]):
            raise model_not_found(name)
        return "/".join(parts[:2])

    def _meant(self, request: JobRequest) -> Job:
        if request.id is not None:
            return self._numbered(str(request.id))
        if not request.model:
            raise invalid("'id' or 'model' is required", "id")
        job = self._services.downloads.find(request.model)
        if job is None:
            raise ApiError(404, "not_found_error", f"no download of '{request.model}' is running", param="model")
        return job

    def _numbered(self, text: str) -> Job:
        job = self._services.downloads.job(int(text)) if text.isdecimal() else None
        if job is None or job.dry:
            raise ApiError(404, "not_found_error", f"there is no download '{text}'", param="id")
        return job


def _place_in_cache(path: str) -> tuple[str, str] | None:
    """The repository of a cached file and its path there; None for a file elsewhere."""
    cache = cache_folder(os.environ)
    try:
        parts = Path(path).relative_to(cache).parts
    except ValueError:
        return None
    if len(parts) < 4 or not parts[0].startswith(_REPO_PREFIX) or parts[1] != "snapshots":
        return None
    return parts[0].removeprefix(_REPO_PREFIX).replace("--", "/"), str(PurePosixPath(*parts[3:]))

"""The models: listed as llama-server's router lists them, loaded, unloaded, pinned, and configured anew."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import Struct

from protocol.load import ModelInfo
from protocol.status import UpdateStatus
from router.config.model import Model
from router.http.call import Call, Response
from router.http.decoding import decode
from router.http.errors import invalid, model_not_found
from router.http.replies import json_reply
from router.http.routing import Route
from router.http.services import Services
from router.scheduling.events import LoadAsked, PinAsked, UnloadAsked
from router.scheduling.model import Need
from router.scheduling.views import ModelView
from router.security.scopes import Scope

SUCCESS = {"success": True}
RUNNING = ("loaded", "loading", "sleeping")
"""Words for a model that has a worker."""


class ModelRequest(Struct):
    """`force` ends what runs instead of waiting for it."""

    model: str | None = None
    force: bool | None = None
    pin: bool | None = None


_request: msgspec.json.Decoder[ModelRequest] = msgspec.json.Decoder(ModelRequest)


class Models:
    def __init__(self, services: Services) -> None:
        self._services = services

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/models", self.list),
            Route("GET", "/models", self.list),
            Route("GET", "/v1/models/{id:path}", self.one),
            Route("POST", "/models/load", self.load),
            Route("POST", "/models/unload", self.unload),
            Route("POST", "/models/pin", self.pin),
            Route("POST", "/models/unpin", self.unpin),
            Route("POST", "/models/reload", self.reload),
        ]

    async def list(self, call: Call) -> Response:
        if call.flag("reload", False):
            self._services.require(call, Scope.MANAGE)
            await self._services.reload()
        catalogue = self._services.catalogue
        models = [model for model in catalogue.listed() if call.may_use(*model.names)]
        entries = [self._entry(model) for model in models]
        answer: dict[str, Any] = {"object": "list", "data": self._services.with_downloads(call, entries)}
        if catalogue.single:
            answer["models"] = [ollama_like(model) for model in models]
        return json_reply(answer)

    async def one(self, call: Call) -> Response:
        return json_reply(self._entry(self._named(call, call.params["id"])))

    async def load(self, call: Call) -> Response:
        model = await self._wanted(call)
        self._services.check_loadable(model)
        if model.missing:
            await self._services.fetch_and_load(model)
            return json_reply(SUCCESS)
        view = self._services.owner.view(model.key)
        # Asked in any case: a worker that others loaded then stays when they unload it.
        self._services.owner.post(LoadAsked(model.key, name=model.id))
        if view is not None and view.status in RUNNING:
            raise invalid("model is already running", "model")
        return json_reply(SUCCESS)

    async def unload(self, call: Call) -> Response:
        request = decode(_request, await call.body())
        if request.model and (job := self._services.downloads.find(request.model)) is not None:
            await self._services.downloads.cancel(job)
            return json_reply(SUCCESS)
        model = self._named(call, request.model)
        view = self._services.owner.view(model.key) if model.key else None
        if view is None or view.status not in RUNNING:
            raise invalid("model is not running", "model")
        self._services.owner.post(UnloadAsked(model.key, name=model.id, force=bool(request.force)))
        return json_reply(SUCCESS)

    async def pin(self, call: Call) -> Response:
        request = decode(_request, await call.body())
        return self._pin(call, request.model, request.pin is not False)

    async def unpin(self, call: Call) -> Response:
        request = decode(_request, await call.body())
        return self._pin(call, request.model, False)

    def _pin(self, call: Call, name: str | None, pin: bool) -> Response:
        model = self._named(call, name)
        self._services.check_loadable(model)
        self._services.owner.post(PinAsked(model.key, pin))
        return json_reply(SUCCESS)

    async def reload(self, call: Call) -> Response:
        return json_reply({"success": True, "changes": msgspec.to_builtins(await self._services.reload())})

    async def _wanted(self, call: Call) -> Model:
        return self._named(call, decode(_request, await call.body()).model)

    def _named(self, call: Call, name: str | None) -> Model:
        """A model by its name alone: nothing is loaded or unloaded by default."""
        if not name:
            raise invalid("'model' is required", "model")
        model = self._services.visible(call, name)
        if model is None:
            raise model_not_found(name)
        return model

    def _entry(self, model: Model) -> dict[str, Any]:
        return model_entry(self._services, model)


def model_entry(services: Services, model: Model) -> dict[str, Any]:
    """One model as lists and events show it."""
    owner = services.owner
    if not model.key:
        return entry(model, None, None, None, time.time())
    value = entry(model, owner.view(model.key), owner.info(model.key), owner.status(model.key), time.time())
    if owner.status(model.key) is not None:
        value["tokens_per_second"] = services.speed(model.key)
    return value


def entry(
    model: Model, view: ModelView | None, info: ModelInfo | None, report: UpdateStatus | None, now: float
) -> dict[str, Any]:
    """One model as llama-server's router shows it, with more about why it is as it is and what it does."""
    value: dict[str, Any] = {
        "id": model.id,
        "aliases": sorted(model.aliases),
        "tags": sorted(model.tags),
        "object": "model",
        "owned_by": "llamacpp",
        "created": int(now),
        "status": status(model, view, now),
        "architecture": {
            "input_modalities": model.input_modalities if info is None else info.input_modalities,
            "output_modalities": ("text",) if info is None else info.output_modalities,
        },
        "source": model.source,
        "can_remove": model.can_remove,
        "path": model.path,
        "pinned": model.traits.pin if view is None else view.pin,
        "requests": {"running": 0, "waiting": 0},
        "memory": {
            "predicted": sum(need_bytes(prediction.need()) for prediction in model.predictions),
            "caches": sum(prediction.caches for prediction in model.predictions),
        },
    }
    if view is not None:
        value["memory"]["reserved"] = sum(size for _, size in view.reserved)
        value["requests"] = {"running": view.running, "waiting": view.waiting}
        if view.blocked:
            value["blocked"] = view.blocked
    if report is not None:
        value.update(activity(report))
        value["memory"].update(resident=report.memory.resident, anonymous=report.memory.anonymous)
    if info is not None:
        value["meta"] = meta(info)
    if model.overridden:
        value["overridden"] = [
            {"option": lost.option.name, "value": lost.text, "origin": lost.origin, "by": won.origin}
            for lost, won in ((item.lost, item.won) for item in model.overridden)
        ]
    return value


def status(model: Model, view: ModelView | None, now: float) -> dict[str, Any]:
    """llama-server's word, and beside it what explains a failure or the progress of a load (0..1).

    `since` and `retry_at` (when a model that failed may be tried again) are Unix seconds, like `now`.
    """
    value: dict[str, Any] = {
        "value": "unloaded" if view is None else view.status,
        "args": model.arguments(),
        "preset": model.preset_text(),
    }
    if model.error:
        value.update(failed=True, reason=model.error)
    if view is None:
        return value
    skew = now - time.monotonic()
    value.update(state=str(view.state), since=view.since + skew)
    if view.retry_at:
        value["retry_at"] = view.retry_at + skew
    if view.status == "loading":
        value.update(stage=view.stage, progress=view.progress)
    if view.reason:
        value["reason"] = view.reason
    if view.exit is not None and view.exit.exit_code != 0 and view.status == "unloaded":
        value["exit_code"] = view.exit.exit_code
        value["reason"] = view.exit.message or view.reason
    if view.failed:
        value["failed"] = True
    return value


def need_bytes(need: Need) -> int:
    return need.private + sum(size for _, size in need.shared)


def activity(report: UpdateStatus) -> dict[str, Any]:
    """What the worker does, by its newest report."""
    busy = sum(slot.state in ("prefill", "decode") for slot in report.slots)
    return {"slots": {"total": len(report.slots), "busy": busy}}


def meta(info: ModelInfo) -> dict[str, Any]:
    return {
        "vocab_type": info.vocab_type,
        "n_vocab": info.n_vocab,
        "n_ctx": info.n_ctx_slot,
        "n_ctx_train": info.n_ctx_train,
        "n_embd": info.n_embd,
        "n_params": info.n_params,
        "size": info.size,
        "ftype": info.ftype,
    }


def ollama_like(model: Model) -> dict[str, Any]:
    """The list that a llama-server with one model shows beside OpenAI's."""
    return {
        "name": model.id,
        "model": model.id,
        "modified_at": "",
        "size": "",
        "digest": "",
        "type": "model",
        "description": "",
        "tags": [""],
        "capabilities": ["completion"] + (["multimodal"] if len(model.input_modalities) > 1 else []),
        "parameters": "",
        "details": {"parent_model": "", "format": "gguf", "family": "", "families": [""], "parameter_size": ""},
    }
